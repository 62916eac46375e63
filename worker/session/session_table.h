// The sessions that are open on this stage: admission, slots and epochs.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "dgr/v1/stage.pb.h"
#include "session/sinks.h"
#include "transport/boundary_codec.h"

namespace dgr {

// One epoch of one session on this stage.
struct Session {
  v1::OpenSession open;  // as received: key, route, our index in it, bounds
  uint32_t slot = 0;
  std::shared_ptr<ErrorSink> upstream;
  std::shared_ptr<FrameSink> next;      // null on the tail
  std::shared_ptr<ResultSink> results;  // null before the tail
  std::shared_ptr<Inbox> inbox;         // null after the head

  std::mutex receiving;  // guards `assembly`
  ChunkAssembly assembly;

  std::atomic<bool> failed = false;  // its failure was told; work still queued for it is dropped
  std::atomic<bool> closed = false;  // its state is being freed

  const v1::SessionKey& key() const { return open.session(); }
};

struct AdmissionBounds {
  uint32_t sessions = 0;
  uint32_t context = 0;  // positions per session
};

class SessionTable {
 public:
  explicit SessionTable(AdmissionBounds bounds);

  // Admits a session and gives it a slot, or says why not, before anything is done for it:
  //   INVALID_ARGUMENT     malformed key
  //   FAILED_PRECONDITION  an epoch that is not larger than one seen before
  //   RESOURCE_EXHAUSTED   the bound that was hit
  absl::StatusOr<std::shared_ptr<Session>> Admit(const v1::OpenSession& open);

  // Makes an admitted session known to Find and All, once it is complete. Returns the session of a smaller epoch that it
  // replaces, for the caller to close, or null.
  std::shared_ptr<Session> Publish(const std::shared_ptr<Session>& session);

  // Null: not open, or another epoch.
  std::shared_ptr<Session> Find(const v1::SessionKey& key) const;

  // Takes a session out; frames for it are refused from now on. Its slot is free only after ReleaseSlot, once the engine has
  // dropped its state.
  void Remove(const Session& session);
  void ReleaseSlot(uint32_t slot);

  std::vector<std::shared_ptr<Session>> All() const;
  uint32_t open_sessions() const;

 private:
  void RememberEpoch(const v1::SessionKey& key);

  const AdmissionBounds bounds_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Session>> sessions_;  // by route_session_id
  std::vector<uint32_t> free_slots_;                          // smallest last
  // The largest epoch seen for recent sessions, oldest first in order_; bounded, so that identifiers cannot fill memory.
  std::map<std::string, uint64_t> epochs_;
  std::deque<std::string> order_;
};

}  // namespace dgr
