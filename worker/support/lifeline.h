// Death with the parent: a supervised program ends when its standard input reaches end-of-file.
#pragma once

#include <functional>

namespace dgr {

// Starts a thread that waits for end-of-file on stdin. The parent holds the other end of the pipe, so the kernel closes it
// however the parent dies. Then `end` is called once for a graceful end, and the process exits hard if it still lives 2 s later.
void WatchLifeline(std::function<void()> end);

}  // namespace dgr
