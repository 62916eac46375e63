// Death with the parent: a supervised program ends when the process that started it ends.
#pragma once

#include <sys/types.h>

#include <functional>

#include "absl/status/status.h"

namespace dgr {

// Asks the kernel to kill this process with SIGKILL when `supervisor`, its parent, dies: a stopped process, too. The kernel acts
// when the thread that started this process ends, so a supervisor starts its programs from a thread that lasts.
// FAILED_PRECONDITION: the supervisor is gone already. Does nothing on systems other than Linux.
absl::Status DieWithSupervisor(pid_t supervisor);

// The second line, for every system: starts a thread that waits for end-of-file on stdin. The parent holds the other end of the
// pipe, so the kernel closes it however the parent dies. Then the thread calls `end` once for a graceful end, and ends the
// process hard if it still lives 2 s later.
void WatchLifeline(std::function<void()> end);

}  // namespace dgr
