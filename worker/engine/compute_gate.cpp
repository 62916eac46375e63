#include "engine/compute_gate.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "support/log.h"

namespace dgr {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kPatience = std::chrono::seconds(2);
constexpr long kIntervalNanoseconds = 100'000'000;
constexpr int kWake = SIGURG;  // ignored unless a handler is set

// Interrupts the blocking call of the thread that makes it, ten times a second. One interrupt can come between two calls and be
// lost, so one alone would not do. On systems other than Linux it does nothing: a wait there has no bound.
class Interrupter {
 public:
#ifdef __linux__
  Interrupter() {
    struct sigevent event = {};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = kWake;
    event._sigev_un._tid = gettid();
    armed_ = timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    const struct itimerspec every = {.it_interval = {0, kIntervalNanoseconds}, .it_value = {0, kIntervalNanoseconds}};
    if (armed_) timer_settime(timer_, 0, &every, nullptr);
  }
  ~Interrupter() {
    if (armed_) timer_delete(timer_);
  }
#else
  Interrupter() {}
#endif
  Interrupter(const Interrupter&) = delete;
  Interrupter& operator=(const Interrupter&) = delete;

  static void Install() {
    struct sigaction action = {};
    action.sa_handler = [](int) {};
    sigemptyset(&action.sa_mask);
    sigaction(kWake, &action, nullptr);  // without SA_RESTART: flock returns EINTR
  }

 private:
#ifdef __linux__
  timer_t timer_ = {};
  bool armed_ = false;
#endif
};

}  // namespace

absl::StatusOr<std::unique_ptr<ComputeGate>> ComputeGate::Open(const std::string& path, std::chrono::seconds longest) {
  if (path.empty()) return std::unique_ptr<ComputeGate>(new ComputeGate(path, -1, longest));
  int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  // A lock needs no right to write: the file may be another user's.
  if (descriptor < 0 && errno == EACCES) descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot open the compute gate ", path, ": ", std::strerror(errno)));
  }
  Interrupter::Install();
  return std::unique_ptr<ComputeGate>(new ComputeGate(path, descriptor, longest));
}

ComputeGate::~ComputeGate() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::StatusOr<ComputeGate::Turn> ComputeGate::Enter() {
  if (descriptor_ < 0) return Turn(-1);
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (absl::Status status = Wait(); !status.ok()) return status;
  }
  return Turn(descriptor_);
}

absl::Status ComputeGate::Wait() {
  const Clock::time_point begun = Clock::now();
  bool told = false;
  const Interrupter interrupter;
  while (flock(descriptor_, LOCK_EX) != 0) {
    if (errno != EINTR) {
      return absl::InternalError(absl::StrCat("cannot lock the compute gate ", path_, ": ", std::strerror(errno)));
    }
    const Clock::duration waited = Clock::now() - begun;
    if (!told && waited >= kPatience) {
      told = true;
      Log(absl::StrCat("waiting for a turn at the compute gate ", path_, ", which another process holds"));
    }
    if (longest_ > std::chrono::seconds::zero() && waited >= longest_) {
      return absl::AbortedError(absl::StrCat("another process held the compute gate ", path_, " for ", longest_.count(), " s"));
    }
  }
  return absl::OkStatus();
}

ComputeGate::Turn::~Turn() {
  if (descriptor_ >= 0) flock(descriptor_, LOCK_UN);
}

}  // namespace dgr
