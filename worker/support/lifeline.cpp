#include "support/lifeline.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

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
