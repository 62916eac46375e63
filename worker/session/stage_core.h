// What a stage does with sessions and chunks, apart from how messages travel.
//
// Threads: transport threads call Open, Frame, Submit and Close; the engine thread computes and sends on; link threads report
// failures. A session's chunks reach the engine in order, because each comes from one thread and the engine's queue keeps order.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dgr/v1/stage.pb.h"
#include "dgr/v1/worker.pb.h"
#include "engine/shard_engine.h"
#include "schedule/engine_thread.h"
#include "session/session_table.h"
#include "session/sinks.h"
#include "transport/boundary_codec.h"
#include "transport/links.h"
#include "transport/tap_hub.h"

namespace dgr {

struct StageConfig {
  AdmissionBounds bounds;
  BoundaryFormat boundary;
  bool allow_probes = false;
  // Shared compatibility document; equal on all stages of a route.
  std::map<std::string, std::string> compatibility;
};

class StageCore {
 public:
  StageCore(std::unique_ptr<ShardEngine> engine, StageConfig config);
  ~StageCore();

  // Checks and admits a session here and passes it on down the route; the tail answers Ready to the head. `inbox` is set on a
  // head only. The status is this stage's own; failures of later stages reach `upstream`.
  absl::StatusOr<std::shared_ptr<Session>> Open(const v1::OpenSession& open, std::shared_ptr<ErrorSink> upstream,
                                                std::shared_ptr<Inbox> inbox);

  // A frame from the stage before. Failures go to the session's upstream, or to `from` where there is no such session.
  void Frame(const v1::BoundaryFrame& frame, ErrorSink& from);

  // What the tail sent back, on the head. For a session that ended meanwhile it is dropped.
  void Result(v1::ReturnRequest message);

  // On the head: lets a generation go on. INVALID_ARGUMENT: no tokens; NOT_FOUND: no such generation.
  absl::Status Grant(const v1::SessionKey& key, uint32_t tokens);

  // A chunk of token ids, on the head.
  void Submit(const std::shared_ptr<Session>& session, Chunk chunk);

  // Ends a session here and on the stages after. Unknown and stale keys are ignored: closing twice is no mistake.
  // Nor does it end a session that was opened by another stream or generation than `from`.
  void Close(const v1::SessionKey& key, const ErrorSink& from);
  // The stage before went away: ends all that it opened.
  void CloseAllFrom(const ErrorSink* upstream);

  // Ends all sessions and links; nothing is accepted afterwards.
  void Drain();

  const ShardEngine& engine() const { return *engine_; }
  const StageConfig& config() const { return config_; }
  SessionTable& sessions() { return sessions_; }
  TapHub& taps() { return taps_; }

 private:
  absl::Status CheckRoute(const v1::OpenSession& open) const;
  absl::Status CheckCompatibility(const v1::OpenSession& open) const;
  absl::Status Connect(Session& session);
  void Announce(const Session& session);
  void End(const std::shared_ptr<Session>& session);
  void Fail(const std::shared_ptr<Session>& session, uint32_t stage_index, const absl::Status& status);

  void Compute(const std::shared_ptr<Session>& session, const Chunk& chunk);  // engine thread
  void Deliver(const Session& session, const Chunk& chunk, const DecodeOutput& output);
  void SendLogits(const Session& session, const Chunk& chunk, absl::Span<const float> logits);

  void ForwardFailed(const v1::ForwardResponse& response);
  void ForwardDown(const ForwardLink* link, const absl::Status& status);
  void ReturnDown(const ReturnLink* link, const absl::Status& status);
  void FailNext(const std::shared_ptr<Session>& session, absl::string_view why);
  void FailReturn(const std::shared_ptr<Session>& session, absl::string_view why);

  const std::unique_ptr<ShardEngine> engine_;
  const StageConfig config_;
  SessionTable sessions_;
  TapHub taps_;
  std::atomic<bool> draining_ = false;
  LinkPool<ForwardLink> forward_links_;
  LinkPool<ReturnLink> return_links_;
  EngineThread engine_thread_;  // ends before everything its jobs use
};

}  // namespace dgr
