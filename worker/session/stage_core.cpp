#include "session/stage_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "support/log.h"
#include "transport/status.h"

namespace dgr {
namespace {

OutputRows ToEngine(v1::OutputRows outputs) {
  switch (outputs) {
    case v1::OUTPUT_ROWS_LAST: return OutputRows::kLast;
    case v1::OUTPUT_ROWS_ALL: return OutputRows::kAll;
    default: return OutputRows::kNone;
  }
}

v1::TapResponse CallRecord(const Session& session, const Chunk& chunk) {
  v1::TapResponse message;
  v1::DecodeCall& call = *message.mutable_call();
  call.set_phase(chunk.phase);
  v1::SequenceRows& rows = *call.add_sequences();
  rows.set_slot(session.slot);
  rows.mutable_token_ids()->Add(chunk.token_ids.begin(), chunk.token_ids.end());
  rows.mutable_positions()->Add(chunk.positions.begin(), chunk.positions.end());
  rows.set_outputs(chunk.outputs);
  return message;
}

// Greedy: the largest logit, the lowest id among equals.
int32_t Argmax(absl::Span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace

StageCore::StageCore(std::unique_ptr<ShardEngine> engine, StageConfig config)
    : engine_(std::move(engine)),
      config_(std::move(config)),
      sessions_(config_.bounds),
      forward_links_([this](const std::string& address) {
        return std::make_shared<ForwardLink>(
            address, [this](const v1::ForwardResponse& response) { ForwardFailed(response); },
            [this](const ForwardLink* link, const absl::Status& status) { ForwardDown(link, status); });
      }),
      return_links_([this](const std::string& address) {
        return std::make_shared<ReturnLink>(
            address, [this](const ReturnLink* link, const absl::Status& status) { ReturnDown(link, status); });
      }) {}

StageCore::~StageCore() { Drain(); }

absl::StatusOr<std::shared_ptr<Session>> StageCore::Open(const v1::OpenSession& open, std::shared_ptr<ErrorSink> upstream,
                                                         std::shared_ptr<Inbox> inbox) {
  if (draining_) return absl::UnavailableError("this stage is ending; use another route");
  if (open.mtp_draft_tokens() != 0) {
    return absl::InvalidArgumentError("multi-token prediction (MTP) is reserved and off; mtp_draft_tokens must be 0");
  }
  if (absl::Status status = CheckRoute(open); !status.ok()) return status;
  if (absl::Status status = CheckCompatibility(open); !status.ok()) return status;
  if (open.logits() && !config_.allow_probes) {
    return absl::PermissionDeniedError("logits are only returned by workers started with --allow-probes");
  }
  absl::StatusOr<std::shared_ptr<Session>> session = sessions_.Admit(open);
  if (!session.ok()) return session.status();
  (*session)->upstream = std::move(upstream);
  (*session)->inbox = std::move(inbox);
  if (absl::Status status = Connect(**session); !status.ok()) {
    sessions_.ReleaseSlot((*session)->slot);
    return status;
  }
  if (const std::shared_ptr<Session> replaced = sessions_.Publish(*session)) {
    Fail(replaced, replaced->open.stage_index(), absl::AbortedError("a larger epoch of this session took over"));
    End(replaced);
  }
  Announce(**session);
  // A link that went down before the session was published told nobody of it.
  if ((*session)->next && (*session)->next->down()) FailNext(*session, "the stream ended");
  if ((*session)->results && (*session)->results->down()) FailReturn(*session, "the stream ended");
  return session;
}

absl::Status StageCore::CheckRoute(const v1::OpenSession& open) const {
  const auto index = open.stage_index();
  if (index >= static_cast<uint32_t>(open.stages_size())) {
    return absl::InvalidArgumentError(absl::StrCat("stage_index ", index, " of a route of ", open.stages_size()));
  }
  const EngineShape& shape = engine_->shape();
  uint32_t expected = 0;
  for (const v1::RouteStage& stage : open.stages()) {
    if (stage.range().begin() != expected || stage.range().end() <= expected || stage.address().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the route's ranges are not contiguous at layer ", expected));
    }
    expected = stage.range().end();
  }
  if (expected != shape.layer_count) {
    return absl::InvalidArgumentError(absl::StrCat("the route ends at layer ", expected, "; the model has ", shape.layer_count));
  }
  const v1::LayerRange& own = open.stages(static_cast<int>(index)).range();
  if (own.begin() != shape.range.begin || own.end() != shape.range.end) {
    return absl::FailedPreconditionError(absl::StrCat("the route expects layers [", own.begin(), ", ", own.end(),
                                                      ") here; this stage owns [", shape.range.begin, ", ", shape.range.end,
                                                      ")"));
  }
  return absl::OkStatus();
}

absl::Status StageCore::CheckCompatibility(const v1::OpenSession& open) const {
  for (const auto& [field, own] : config_.compatibility) {
    const auto found = open.compatibility().find(field);
    const std::string theirs = found == open.compatibility().end() ? "not given" : found->second;
    if (theirs != own) {
      return absl::FailedPreconditionError(
          absl::StrCat("not compatible: ", field, " is '", own, "' here and '", theirs, "' at the head"));
    }
  }
  if (open.compatibility().size() != config_.compatibility.size()) {
    return absl::FailedPreconditionError("not compatible: the head's document holds fields this stage does not know");
  }
  return absl::OkStatus();
}

absl::Status StageCore::Connect(Session& session) {
  if (!engine_->shape().tail()) {
    const v1::RouteStage& next = session.open.stages(static_cast<int>(session.open.stage_index()) + 1);
    absl::StatusOr<std::shared_ptr<ForwardLink>> link = forward_links_.Get(next.address());
    if (!link.ok()) return link.status();
    session.next = *std::move(link);
  } else if (session.inbox) {
    session.results = session.inbox;
  } else {
    absl::StatusOr<std::shared_ptr<ReturnLink>> link = return_links_.Get(session.open.return_address());
    if (!link.ok()) return link.status();
    session.results = *std::move(link);
  }
  return absl::OkStatus();
}

void StageCore::Announce(const Session& session) {
  if (session.next) {
    v1::ForwardRequest message;
    *message.mutable_open() = session.open;
    message.mutable_open()->set_stage_index(session.open.stage_index() + 1);
    session.next->SendForward(std::move(message));
    return;
  }
  v1::ReturnRequest message;
  *message.mutable_session() = session.key();
  message.mutable_ready();
  session.results->SendResult(std::move(message));
}

void StageCore::Result(v1::ReturnRequest message) {
  const std::shared_ptr<Session> session = sessions_.Find(message.session());
  if (session && session->inbox) session->inbox->SendResult(std::move(message));
}

absl::Status StageCore::Grant(const v1::SessionKey& key, uint32_t tokens) {
  if (tokens == 0) return absl::InvalidArgumentError("tokens must be at least 1");
  const std::shared_ptr<Session> session = sessions_.Find(key);
  if (!session || !session->inbox) return absl::NotFoundError("no generation of this session and epoch is under way here");
  session->inbox->Grant(tokens);
  return absl::OkStatus();
}

void StageCore::Frame(const v1::BoundaryFrame& frame, ErrorSink& from) {
  const std::shared_ptr<Session> session = sessions_.Find(frame.session());
  if (!session || session->upstream.get() != &from) {
    v1::StageError error;
    error.set_code(static_cast<int32_t>(absl::StatusCode::kFailedPrecondition));
    error.set_message("a frame for a session or epoch that is not open here over this stream");
    from.SendError(frame.session(), error);
    return;
  }
  absl::Status status;
  Chunk chunk;
  {
    const std::lock_guard lock(session->receiving);
    const absl::StatusOr<bool> complete = session->assembly.Add(config_.boundary, frame, session->open.max_positions());
    if (complete.ok() && !*complete) return;
    if (complete.ok()) chunk = session->assembly.TakeChunk();
    status = complete.status();
  }
  if (status.ok() && frame.outputs() == v1::OUTPUT_ROWS_ALL && !session->open.logits()) {
    status = absl::InvalidArgumentError("frame refused: outputs asks for all rows in a session without logits");
  }
  if (!status.ok()) {
    Fail(session, session->open.stage_index(), status);
    return;
  }
  Submit(session, std::move(chunk));
}

void StageCore::Submit(const std::shared_ptr<Session>& session, Chunk chunk) {
  engine_thread_.Post([this, session, chunk = std::move(chunk)] {
    if (!session->failed) Compute(session, chunk);
  });
}

void StageCore::Compute(const std::shared_ptr<Session>& session, const Chunk& chunk) {
  if (config_.allow_probes) taps_.Publish(session->key(), CallRecord(*session, chunk));
  SequenceInput input;
  input.slot = session->slot;
  input.positions = chunk.positions;
  input.token_ids = chunk.token_ids;
  input.residual = chunk.residual;
  input.outputs = ToEngine(chunk.outputs);
  const absl::StatusOr<DecodeOutput> output = engine_->Decode(input);
  if (!output.ok()) {
    Fail(session, session->open.stage_index(), output.status());
    return;
  }
  Deliver(*session, chunk, *output);
}

void StageCore::Deliver(const Session& session, const Chunk& chunk, const DecodeOutput& output) {
  if (session.next) {
    for (v1::BoundaryFrame& frame : EncodeChunk(config_.boundary, session.key(), chunk, output.residual)) {
      if (config_.allow_probes && taps_.tapped(session.key())) {
        v1::TapResponse copy;
        *copy.mutable_frame() = frame;
        taps_.Publish(session.key(), std::move(copy));
      }
      v1::ForwardRequest message;
      *message.mutable_frame() = std::move(frame);
      session.next->SendForward(std::move(message));
    }
    return;
  }
  if (session.open.logits()) SendLogits(session, chunk, output.logits);
  v1::ReturnRequest message;
  *message.mutable_session() = session.key();
  v1::ChunkResult& result = *message.mutable_result();
  result.set_step(chunk.step);
  if (!output.logits.empty()) {
    const size_t vocabulary = engine_->shape().vocabulary;
    result.set_sampled(true);
    result.set_token_id(Argmax(absl::MakeConstSpan(output.logits).last(vocabulary)));
  }
  session.results->SendResult(std::move(message));
}

void StageCore::SendLogits(const Session& session, const Chunk& chunk, absl::Span<const float> logits) {
  const size_t vocabulary = engine_->shape().vocabulary;
  const size_t rows = logits.size() / vocabulary;
  const size_t step = std::max<size_t>(1, config_.boundary.fragment_bytes / (vocabulary * sizeof(float)));
  const size_t first = chunk.positions.size() - rows;  // LAST gives the last row, ALL gives every row
  for (size_t row = 0; row < rows; row += step) {
    const size_t count = std::min(step, rows - row);
    v1::ReturnRequest message;
    *message.mutable_session() = session.key();
    v1::LogitsRows& out = *message.mutable_logits();
    out.set_first_position(chunk.positions[first + row]);
    out.set_rows(static_cast<uint32_t>(count));
    out.set_vocabulary(static_cast<uint32_t>(vocabulary));
    const absl::Span<const float> values = logits.subspan(row * vocabulary, count * vocabulary);
    out.set_values(values.data(), values.size() * sizeof(float));
    session.results->SendResult(std::move(message));
  }
}

void StageCore::Close(const v1::SessionKey& key, const ErrorSink& from) {
  const std::shared_ptr<Session> session = sessions_.Find(key);
  if (session && session->upstream.get() == &from) End(session);
}

void StageCore::CloseAllFrom(const ErrorSink* upstream) {
  for (const std::shared_ptr<Session>& session : sessions_.All()) {
    if (session->upstream.get() == upstream) End(session);
  }
}

void StageCore::End(const std::shared_ptr<Session>& session) {
  session->failed = true;
  if (session->closed.exchange(true)) return;
  if (session->next) {
    v1::ForwardRequest message;
    *message.mutable_close()->mutable_session() = session->key();
    session->next->SendForward(std::move(message));
  }
  sessions_.Remove(*session);
  // Behind the chunks of this session that the engine still has queued.
  engine_thread_.Post([this, session] {
    if (const absl::Status status = engine_->FreeSlot(session->slot); !status.ok()) {
      Log(absl::StrCat("slot ", session->slot, " is lost: ", status.message()));
    } else {
      sessions_.ReleaseSlot(session->slot);
    }
    taps_.SessionEnded(session->key());
  });
}

void StageCore::Fail(const std::shared_ptr<Session>& session, uint32_t stage_index, const absl::Status& status) {
  // Later chunks of the session are dropped; the head closes it when it has heard.
  if (session->failed.exchange(true)) return;
  session->upstream->SendError(session->key(), MakeStageError(session->open.stages(), stage_index, status));
}

void StageCore::ForwardFailed(const v1::ForwardResponse& response) {
  const std::shared_ptr<Session> session = sessions_.Find(response.session());
  if (!session || session->failed.exchange(true)) return;
  v1::StageError error = response.error();
  if (error.range().end() == 0) {  // the next stage does not know the session, hence not its own place in the route
    const uint32_t next = session->open.stage_index() + 1;
    error =
        MakeStageError(session->open.stages(), next, absl::Status(static_cast<absl::StatusCode>(error.code()), error.message()));
  }
  session->upstream->SendError(session->key(), error);
}

void StageCore::ForwardDown(const ForwardLink* link, const absl::Status& status) {
  for (const std::shared_ptr<Session>& session : sessions_.All()) {
    if (session->next.get() == link) FailNext(session, status.message());
  }
}

void StageCore::ReturnDown(const ReturnLink* link, const absl::Status& status) {
  for (const std::shared_ptr<Session>& session : sessions_.All()) {
    if (session->results.get() == link) FailReturn(session, status.message());
  }
}

void StageCore::FailNext(const std::shared_ptr<Session>& session, absl::string_view why) {
  Fail(session, session->open.stage_index() + 1, absl::UnavailableError(absl::StrCat("it died or cannot be reached: ", why)));
}

void StageCore::FailReturn(const std::shared_ptr<Session>& session, absl::string_view why) {
  Fail(session, 0,
       absl::UnavailableError(
           absl::StrCat("the tail cannot return tokens to the head at ", session->open.return_address(), ": ", why)));
}

void StageCore::Drain() {
  if (draining_.exchange(true)) return;
  for (const std::shared_ptr<Session>& session : sessions_.All()) {
    Fail(session, session->open.stage_index(), absl::UnavailableError("this stage is ending"));
    End(session);
  }
  taps_.EndAll();
}

}  // namespace dgr
