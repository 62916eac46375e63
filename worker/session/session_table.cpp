#include "session/session_table.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace dgr {
namespace {

constexpr size_t kMaxSessionIdLength = 128;
constexpr size_t kRememberedEpochs = 65536;

bool IsSessionIdCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == ':' || c == '-';
}

absl::Status CheckKey(const v1::SessionKey& key) {
  const std::string& id = key.route_session_id();
  if (id.empty() || id.size() > kMaxSessionIdLength || !std::all_of(id.begin(), id.end(), IsSessionIdCharacter)) {
    return absl::InvalidArgumentError("route_session_id must be 1 to 128 characters of [A-Za-z0-9._:-]");
  }
  if (key.route_epoch() == 0) return absl::InvalidArgumentError("route_epoch counts from 1");
  return absl::OkStatus();
}

}  // namespace

SessionTable::SessionTable(AdmissionBounds bounds) : bounds_(bounds) {
  for (uint32_t slot = bounds.sessions; slot > 0; --slot) free_slots_.push_back(slot - 1);
}

absl::StatusOr<std::shared_ptr<Session>> SessionTable::Admit(const v1::OpenSession& open) {
  if (absl::Status status = CheckKey(open.session()); !status.ok()) return status;
  if (open.max_positions() == 0) return absl::InvalidArgumentError("max_positions must be at least 1");
  if (open.max_positions() > bounds_.context) {
    return absl::ResourceExhaustedError(absl::StrCat("the session needs ", open.max_positions(),
                                                     " positions; this stage holds context = ", bounds_.context, " per session"));
  }
  const std::lock_guard lock(mutex_);
  const std::string& id = open.session().route_session_id();
  if (const auto seen = epochs_.find(id); seen != epochs_.end() && open.session().route_epoch() <= seen->second) {
    return absl::FailedPreconditionError(absl::StrCat("epoch ", open.session().route_epoch(), " of session ", id,
                                                      " is stale: epoch ", seen->second, " was seen here"));
  }
  if (free_slots_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("all of this stage's sessions = ", bounds_.sessions, " are in use; try again when one ends"));
  }
  auto session = std::make_shared<Session>();
  session->open = open;
  session->slot = free_slots_.back();
  free_slots_.pop_back();
  RememberEpoch(open.session());
  return session;
}

std::shared_ptr<Session> SessionTable::Publish(const std::shared_ptr<Session>& session) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Session>& entry = sessions_[session->key().route_session_id()];
  std::shared_ptr<Session> replaced = std::exchange(entry, session);
  return replaced;
}

std::shared_ptr<Session> SessionTable::Find(const v1::SessionKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(key.route_session_id());
  if (found == sessions_.end() || found->second->key().route_epoch() != key.route_epoch()) return nullptr;
  return found->second;
}

void SessionTable::Remove(const Session& session) {
  const std::lock_guard lock(mutex_);
  const auto found = sessions_.find(session.key().route_session_id());
  if (found != sessions_.end() && found->second.get() == &session) sessions_.erase(found);
}

void SessionTable::ReleaseSlot(uint32_t slot) {
  const std::lock_guard lock(mutex_);
  free_slots_.push_back(slot);
  std::sort(free_slots_.begin(), free_slots_.end(), std::greater<>());
}

std::vector<std::shared_ptr<Session>> SessionTable::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Session>> all;
  all.reserve(sessions_.size());
  for (const auto& [id, session] : sessions_) all.push_back(session);
  return all;
}

uint32_t SessionTable::open_sessions() const {
  const std::lock_guard lock(mutex_);
  return static_cast<uint32_t>(sessions_.size());
}

void SessionTable::RememberEpoch(const v1::SessionKey& key) {
  const auto [entry, is_new] = epochs_.insert_or_assign(key.route_session_id(), key.route_epoch());
  if (!is_new) return;
  order_.push_back(entry->first);
  if (order_.size() > kRememberedEpochs) {
    epochs_.erase(order_.front());
    order_.pop_front();
  }
}

}  // namespace dgr
