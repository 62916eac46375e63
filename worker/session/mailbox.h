// What a generation on the head waits for: results from the tail, failures from any stage, and credit from its client.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <variant>

#include "session/sinks.h"

namespace dgr {

class Mailbox final : public ErrorSink, public Inbox {
 public:
  struct Credit {
    uint32_t tokens = 0;
  };
  using Event = std::variant<v1::ReturnRequest, v1::StageError, Credit>;

  void SendError(const v1::SessionKey&, const v1::StageError& error) override { Put(error); }
  void SendResult(v1::ReturnRequest message) override { Put(std::move(message)); }
  void Grant(uint32_t tokens) override { Put(Credit{tokens}); }
  bool down() const override { return false; }

  // The next event, or none when `wait` is over.
  std::optional<Event> Take(std::chrono::milliseconds wait) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, wait, [this] { return !events_.empty(); })) return std::nullopt;
    Event event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  void Put(Event event) {
    {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
    }
    arrived_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;
};

}  // namespace dgr
