// Copies of what this stage computes and sends, for certification.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "dgr/v1/worker.pb.h"

namespace dgr {

// One reader of one session. A reader that falls too far behind loses the tap, never silently a part of it.
class Tap {
 public:
  enum class State { kOpen, kEnded, kOverrun };

  void Put(v1::TapResponse message);
  void End();

  // The next message; none when `wait` is over or nothing more will come (see state).
  std::optional<v1::TapResponse> Take(std::chrono::milliseconds wait);
  // kEnded or kOverrun only once everything before it was taken.
  State state() const;

 private:
  static constexpr size_t kMaxQueuedBytes = 256 * 1024 * 1024;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<v1::TapResponse> queue_;
  size_t queued_bytes_ = 0;
  State state_ = State::kOpen;
};

class TapHub {
 public:
  // Before the session starts. Null: that session already has a tap here.
  std::shared_ptr<Tap> Open(const v1::SessionKey& session);
  void Remove(const v1::SessionKey& session);

  bool tapped(const v1::SessionKey& session) const;
  void Publish(const v1::SessionKey& session, v1::TapResponse message);
  void SessionEnded(const v1::SessionKey& session);
  void EndAll();

 private:
  static std::string Id(const v1::SessionKey& session);
  std::shared_ptr<Tap> Find(const v1::SessionKey& session) const;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Tap>> taps_;
};

}  // namespace dgr
