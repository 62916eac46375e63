// The links of this worker to others, one an address and direction, shared by all sessions.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "session/sinks.h"
#include "transport/stream_link.h"

namespace dgr {

// To a next stage.
class ForwardLink final : public FrameSink {
 public:
  ForwardLink(const std::string& address, std::function<void(const v1::ForwardResponse&)> failed,
              std::function<void(const ForwardLink*, absl::Status)> down);
  void SendForward(v1::ForwardRequest message) override { link_.Send(std::move(message)); }
  bool down() const override { return link_.down(); }

 private:
  StreamLink<v1::ForwardRequest, v1::ForwardResponse> link_;
};

// From the tail to a head.
class ReturnLink final : public ResultSink {
 public:
  ReturnLink(const std::string& address, std::function<void(const ReturnLink*, absl::Status)> down);
  void SendResult(v1::ReturnRequest message) override { link_.Send(std::move(message)); }
  bool down() const override { return link_.down(); }

 private:
  StreamLink<v1::ReturnRequest, v1::ReturnResponse> link_;
};

// Links by address. The pool holds every link until it is down and unused, and lets go of it only in Get, so that no link is
// ever destroyed on its own thread.
template <typename Link>
class LinkPool {
 public:
  using Make = std::function<std::shared_ptr<Link>(const std::string& address)>;
  explicit LinkPool(Make make) : make_(std::move(make)) {}

  // RESOURCE_EXHAUSTED: as many links as are allowed are in use.
  absl::StatusOr<std::shared_ptr<Link>> Get(const std::string& address) {
    const std::lock_guard lock(mutex_);
    retired_.remove_if([](const auto& link) { return link.use_count() == 1; });
    if (const auto found = links_.find(address); found != links_.end()) {
      if (!found->second->down()) return found->second;
      retired_.push_back(std::move(found->second));
      links_.erase(found);
    }
    std::erase_if(links_, [this](const auto& entry) { return links_.size() >= kMaxLinks && entry.second.use_count() == 1; });
    if (links_.size() + retired_.size() >= kMaxLinks) {
      return absl::ResourceExhaustedError("this stage has links to as many addresses as it may (64)");
    }
    return links_[address] = make_(address);
  }

  void Clear() {
    const std::lock_guard lock(mutex_);
    links_.clear();
    retired_.clear();
  }

 private:
  static constexpr size_t kMaxLinks = 64;

  const Make make_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Link>> links_;
  std::list<std::shared_ptr<Link>> retired_;  // down, still held by sessions that are ending
};

}  // namespace dgr
