// Turn-taking between the workers of one machine that share processors.
//
// The compute threads of ggml spin at every barrier of a graph. Two pools that compute at once on the same processors therefore
// stall each other for whole time slices. Workers started with the same gate file compute one at a time.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace dgr {

class ComputeGate {
 public:
  // Holds the gate while it lives. The kernel opens the gate of a process that dies.
  class Turn {
   public:
    explicit Turn(int descriptor) : descriptor_(descriptor) {}
    Turn(Turn&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn();

   private:
    int descriptor_;
  };

  // An empty path gives a gate that is always open. `longest` is the longest wait for a turn; zero: without end.
  static absl::StatusOr<std::unique_ptr<ComputeGate>> Open(const std::string& path, std::chrono::seconds longest = {});
  ~ComputeGate();
  ComputeGate(const ComputeGate&) = delete;
  ComputeGate& operator=(const ComputeGate&) = delete;

  // Waits for a turn. Says so in the log after two seconds. ABORTED: the longest wait is over. INTERNAL: the file cannot be
  // locked.
  absl::StatusOr<Turn> Enter();

 private:
  ComputeGate(std::string path, int descriptor, std::chrono::seconds longest)
      : path_(std::move(path)), descriptor_(descriptor), longest_(longest) {}
  absl::Status Wait();

  const std::string path_;
  const int descriptor_;
  const std::chrono::seconds longest_;
};

}  // namespace dgr
