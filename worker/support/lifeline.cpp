#include "support/lifeline.h"

#include <signal.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "support/log.h"

namespace dgr {
namespace {

constexpr auto kGrace = std::chrono::seconds(2);

void WaitForEndOfFile() {
  char buffer[64];
  for (;;) {
    const ssize_t n = read(STDIN_FILENO, buffer, sizeof buffer);
    if (n == 0 || (n < 0 && errno != EINTR)) return;
  }
}

}  // namespace

absl::Status DieWithSupervisor(pid_t supervisor) {
#ifdef __linux__
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::InternalError(absl::StrCat("prctl(PR_SET_PDEATHSIG) failed: ", std::strerror(errno)));
  }
#endif
  // The supervisor may have died before the call above; then nothing would ever end this process.
  if (getppid() != supervisor) {
    return absl::FailedPreconditionError(absl::StrCat("the process ", supervisor, ", which started this one, has ended"));
  }
  return absl::OkStatus();
}

void WatchLifeline(std::function<void()> end) {
  std::thread([end = std::move(end)] {
    WaitForEndOfFile();
    Log("the supervising process is gone; ending");
    end();
    std::this_thread::sleep_for(kGrace);  // the bound of the graceful end, not a synchronisation
    _exit(1);
  }).detach();
}

}  // namespace dgr
