#include "transport/tap_hub.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace dgr {

void Tap::Put(v1::TapResponse message) {
  {
    const std::lock_guard lock(mutex_);
    if (state_ != State::kOpen) return;
    queued_bytes_ += message.ByteSizeLong();
    if (queued_bytes_ > kMaxQueuedBytes) {
      state_ = State::kOverrun;
    } else {
      queue_.push_back(std::move(message));
    }
  }
  changed_.notify_one();
}

void Tap::End() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpen) state_ = State::kEnded;
  }
  changed_.notify_one();
}

std::optional<v1::TapResponse> Tap::Take(std::chrono::milliseconds wait) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, wait, [this] { return !queue_.empty() || state_ != State::kOpen; });
  if (queue_.empty()) return std::nullopt;
  v1::TapResponse message = std::move(queue_.front());
  queue_.pop_front();
  queued_bytes_ -= message.ByteSizeLong();
  return message;
}

Tap::State Tap::state() const {
  const std::lock_guard lock(mutex_);
  return queue_.empty() ? state_ : State::kOpen;
}

std::shared_ptr<Tap> TapHub::Open(const v1::SessionKey& session) {
  const std::lock_guard lock(mutex_);
  auto [entry, is_new] = taps_.try_emplace(Id(session), std::make_shared<Tap>());
  return is_new ? entry->second : nullptr;
}

void TapHub::Remove(const v1::SessionKey& session) {
  const std::lock_guard lock(mutex_);
  taps_.erase(Id(session));
}

bool TapHub::tapped(const v1::SessionKey& session) const { return Find(session) != nullptr; }

void TapHub::Publish(const v1::SessionKey& session, v1::TapResponse message) {
  if (const std::shared_ptr<Tap> tap = Find(session)) tap->Put(std::move(message));
}

void TapHub::SessionEnded(const v1::SessionKey& session) {
  if (const std::shared_ptr<Tap> tap = Find(session)) tap->End();
}

void TapHub::EndAll() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, tap] : taps_) tap->End();
}

std::string TapHub::Id(const v1::SessionKey& session) {
  return absl::StrCat(session.route_epoch(), "/", session.route_session_id());
}

std::shared_ptr<Tap> TapHub::Find(const v1::SessionKey& session) const {
  const std::lock_guard lock(mutex_);
  const auto found = taps_.find(Id(session));
  return found == taps_.end() ? nullptr : found->second;
}

}  // namespace dgr
