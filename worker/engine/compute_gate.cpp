#include "engine/compute_gate.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace dgr {

absl::StatusOr<std::unique_ptr<ComputeGate>> ComputeGate::Open(const std::string& path) {
  if (path.empty()) return std::unique_ptr<ComputeGate>(new ComputeGate(-1));
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot open the compute gate ", path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<ComputeGate>(new ComputeGate(descriptor));
}

ComputeGate::~ComputeGate() {
  if (descriptor_ >= 0) close(descriptor_);
}

ComputeGate::Turn::Turn(ComputeGate& gate) : gate_(gate) {
  if (gate_.descriptor_ < 0) return;
  while (flock(gate_.descriptor_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

ComputeGate::Turn::~Turn() {
  if (gate_.descriptor_ >= 0) flock(gate_.descriptor_, LOCK_UN);
}

}  // namespace dgr
