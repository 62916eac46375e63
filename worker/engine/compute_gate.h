// Turn-taking between the workers of one machine that share processors.
//
// The compute threads of ggml spin at every barrier of a graph. Two pools that compute at once on the same processors therefore
// stall each other for whole time slices. Workers started with the same gate file compute one at a time.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace dgr {

class ComputeGate {
 public:
  // An empty path gives a gate that is always open.
  static absl::StatusOr<std::unique_ptr<ComputeGate>> Open(const std::string& path);
  ~ComputeGate();
  ComputeGate(const ComputeGate&) = delete;
  ComputeGate& operator=(const ComputeGate&) = delete;

  // Holds the gate while it lives. The kernel opens the gate of a process that dies.
  class Turn {
   public:
    explicit Turn(ComputeGate& gate);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    ComputeGate& gate_;
  };

 private:
  explicit ComputeGate(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace dgr
