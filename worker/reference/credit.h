// How many tokens a generation may still generate, where its client gives credit.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>

namespace dgr {

class Credit {
 public:
  // 0: more than any generation can use.
  explicit Credit(uint32_t tokens) : tokens_(tokens == 0 ? std::numeric_limits<uint32_t>::max() : tokens) {}

  void Grant(uint32_t tokens) {
    {
      const std::lock_guard lock(mutex_);
      tokens_ += tokens;
    }
    granted_.notify_one();
  }

  // Uses one up.
  void Spend() {
    const std::lock_guard lock(mutex_);
    --tokens_;
  }

  // Whether there is some; waits no longer than `wait` for it.
  bool Await(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    return granted_.wait_for(lock, wait, [this] { return tokens_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable granted_;
  uint64_t tokens_;
};

}  // namespace dgr
