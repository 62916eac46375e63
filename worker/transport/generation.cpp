#include "transport/generation.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "support/remedy.h"
#include "transport/status.h"

#define DGR_RETURN_IF_ERROR(expression)                                     \
  do {                                                                      \
    if (grpc::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

namespace dgr {
namespace {

// How often a wait looks whether the client is still there; gRPC's synchronous interface has no other way to tell.
constexpr auto kCancellationCheck = std::chrono::milliseconds(50);

uint64_t Microseconds(std::chrono::steady_clock::duration duration) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

}  // namespace

Generation::Generation(StageCore& core, const v1::GenerateRequest& request, grpc::ServerContext& context,
                       grpc::ServerWriter<v1::GenerateResponse>& out)
    : core_(core),
      request_(request),
      context_(context),
      out_(out),
      // Without a credit: more than max_tokens can ask for.
      credit_(request.credit() == 0 ? std::numeric_limits<uint32_t>::max() : request.credit()) {}

grpc::Status Generation::Run() {
  DGR_RETURN_IF_ERROR(CheckRequest());
  DGR_RETURN_IF_ERROR(ReadPrompt());
  grpc::Status status = OpenRoute();
  if (status.ok()) status = Prefill();
  if (status.ok()) status = Decode();
  core_.Close(request_.session(), *mailbox_);
  return status;
}

grpc::Status Generation::CheckRequest() const {
  const auto invalid = [](auto... text) { return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, absl::StrCat(text...)); };
  if (!core_.engine().shape().head()) {
    return {grpc::StatusCode::FAILED_PRECONDITION,
            absl::StrCat("this stage owns layers from ", core_.engine().shape().range.begin,
                         " on; generation starts at the head, which owns layer 0")};
  }
  if (request_.max_tokens() == 0) return invalid("max_tokens must be at least 1");
  if (request_.prefill_window() == 0) return invalid("prefill_window must be at least 1");
  if (request_.logits() == v1::OUTPUT_ROWS_UNSPECIFIED) return invalid("logits must be NONE, LAST or ALL");
  if (request_.prompt().input_case() == v1::Prompt::INPUT_NOT_SET) return invalid("the prompt is missing");
  return grpc::Status::OK;
}

grpc::Status Generation::Refuse(const absl::Status& status) {
  if (const auto remedy = status.GetPayload(kRemedyKey)) {
    context_.AddTrailingMetadata(kRemedyKey, std::string(*remedy));
  }
  return ToGrpc(status);
}

grpc::Status Generation::ReadPrompt() {
  const uint32_t context = core_.config().bounds.context;
  if (request_.prompt().has_tokens()) {
    tokens_.assign(request_.prompt().tokens().ids().begin(), request_.prompt().tokens().ids().end());
  } else {
    absl::StatusOr<std::vector<int32_t>> tokens =
        core_.engine().Tokenize(request_.prompt().text(), request_.prompt().chat_template(), context);
    if (!tokens.ok()) return Refuse(tokens.status());
    tokens_ = *std::move(tokens);
  }
  prompt_tokens_ = tokens_.size();
  if (tokens_.empty()) return {grpc::StatusCode::INVALID_ARGUMENT, "the prompt holds no token"};
  const uint32_t vocabulary = core_.engine().shape().vocabulary;
  for (const int32_t token : tokens_) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocabulary) {
      return {grpc::StatusCode::INVALID_ARGUMENT, absl::StrCat("token id ", token, " is outside the vocabulary of ", vocabulary)};
    }
  }
  // The last token that is sampled is never fed back.
  const uint64_t needed = uint64_t{prompt_tokens_} + request_.max_tokens() - 1;
  if (needed > context) {
    const absl::Status over = absl::ResourceExhaustedError(
        absl::StrCat("a prompt of ", prompt_tokens_, " tokens and max_tokens = ", request_.max_tokens(), " need ", needed,
                     " positions; this route holds context = ", context, " per session"));
    return Refuse(WithRemedy(over, "shorten the prompt or lower --max-tokens, or use a recipe with a larger context"));
  }
  return grpc::Status::OK;
}

grpc::Status Generation::OpenRoute() {
  v1::OpenSession open;
  *open.mutable_session() = request_.session();
  *open.mutable_stages() = request_.stages();
  open.set_stage_index(0);
  if (request_.stages_size() > 0) open.set_return_address(request_.stages(0).address());
  open.set_max_positions(static_cast<uint32_t>(prompt_tokens_) + request_.max_tokens() - 1);
  open.set_logits(request_.logits() != v1::OUTPUT_ROWS_NONE);
  open.set_mtp_draft_tokens(request_.mtp_draft_tokens());
  for (const auto& [field, value] : core_.config().compatibility) (*open.mutable_compatibility())[field] = value;
  absl::StatusOr<std::shared_ptr<Session>> session = core_.Open(open, mailbox_, mailbox_);
  if (!session.ok()) {
    return StageErrorStatus(MakeStageError(open.stages(), 0, session.status()), context_);
  }
  session_ = *std::move(session);
  v1::ReturnRequest message;
  DGR_RETURN_IF_ERROR(Await(message));
  if (!message.has_ready()) return {grpc::StatusCode::INTERNAL, "the tail answered before it was ready"};
  v1::GenerateResponse response;
  response.mutable_accepted()->mutable_prompt_token_ids()->Add(tokens_.begin(), tokens_.end());
  return Write(response) ? grpc::Status::OK : grpc::Status::CANCELLED;
}

grpc::Status Generation::Prefill() {
  const size_t ubatch = core_.config().boundary.ubatch;
  const bool all = request_.logits() == v1::OUTPUT_ROWS_ALL;
  const size_t chunks = (prompt_tokens_ + ubatch - 1) / ubatch;
  started_ = Clock::now();
  size_t submitted = 0;
  v1::ChunkResult result;
  for (size_t done = 0; done < chunks; ++done) {
    for (; submitted < chunks && submitted - done < request_.prefill_window(); ++submitted) {
      const bool last = submitted + 1 == chunks;
      const size_t begin = submitted * ubatch;
      SubmitChunk(begin, std::min(ubatch, prompt_tokens_ - begin), v1::PHASE_PREFILL,
                  all    ? v1::OUTPUT_ROWS_ALL
                  : last ? v1::OUTPUT_ROWS_LAST
                         : v1::OUTPUT_ROWS_NONE);
    }
    DGR_RETURN_IF_ERROR(AwaitResult(result));
  }
  first_token_ = last_token_ = Clock::now();
  if (!result.sampled()) return {grpc::StatusCode::INTERNAL, "the tail sampled no token for the prompt"};
  tokens_.push_back(result.token_id());
  return grpc::Status::OK;
}

grpc::Status Generation::Decode() {
  for (;;) {
    const int32_t token = tokens_.back();
    if (!request_.ignore_end_of_generation() && core_.engine().EndsGeneration(token)) {
      return Finish(v1::FINISH_REASON_END_OF_GENERATION);
    }
    const bool last = generated_ + 1 == request_.max_tokens();
    --credit_;
    // The route computes the next token while the client is told this one.
    const bool ahead = !last && credit_ > 0;
    if (ahead) SubmitChunk(tokens_.size() - 1, 1, v1::PHASE_DECODE, v1::OUTPUT_ROWS_LAST);
    DGR_RETURN_IF_ERROR(WriteToken(token));
    if (last) return Finish(v1::FINISH_REASON_MAX_TOKENS);
    if (!ahead) {
      DGR_RETURN_IF_ERROR(AwaitCredit());
      waited_ += Clock::now() - last_token_;
      SubmitChunk(tokens_.size() - 1, 1, v1::PHASE_DECODE, v1::OUTPUT_ROWS_LAST);
    }
    v1::ChunkResult result;
    DGR_RETURN_IF_ERROR(AwaitResult(result));
    if (!result.sampled()) return {grpc::StatusCode::INTERNAL, "the tail sampled no token"};
    last_token_ = Clock::now();
    tokens_.push_back(result.token_id());
  }
}

void Generation::SubmitChunk(size_t begin, size_t rows, v1::Phase phase, v1::OutputRows outputs) {
  Chunk chunk;
  chunk.step = next_step_++;
  chunk.phase = phase;
  chunk.outputs = outputs;
  const auto first = tokens_.begin() + static_cast<std::ptrdiff_t>(begin);
  chunk.token_ids.assign(first, first + static_cast<std::ptrdiff_t>(rows));
  for (size_t row = 0; row < rows; ++row) chunk.positions.push_back(static_cast<int32_t>(begin + row));
  core_.Submit(session_, std::move(chunk));
}

grpc::Status Generation::AwaitResult(v1::ChunkResult& result) {
  for (;;) {
    v1::ReturnRequest message;
    DGR_RETURN_IF_ERROR(Await(message));
    if (message.has_logits()) {
      v1::GenerateResponse response;
      *response.mutable_logits() = std::move(*message.mutable_logits());
      if (!Write(response)) return grpc::Status::CANCELLED;
      continue;
    }
    if (!message.has_result()) return {grpc::StatusCode::INTERNAL, "the tail sent something else than a result"};
    result = message.result();
    return grpc::Status::OK;
  }
}

grpc::Status Generation::Await(v1::ReturnRequest& message) {
  std::optional<v1::ReturnRequest> next;
  while (!next) DGR_RETURN_IF_ERROR(TakeEvent(next));
  message = *std::move(next);
  return grpc::Status::OK;
}

grpc::Status Generation::AwaitCredit() {
  std::optional<v1::ReturnRequest> message;
  while (credit_ == 0) {
    DGR_RETURN_IF_ERROR(TakeEvent(message));
    if (message) return {grpc::StatusCode::INTERNAL, "the tail sent a result that nobody asked for"};
  }
  return grpc::Status::OK;
}

grpc::Status Generation::TakeEvent(std::optional<v1::ReturnRequest>& message) {
  if (context_.IsCancelled()) return grpc::Status::CANCELLED;
  std::optional<Mailbox::Event> event = mailbox_->Take(kCancellationCheck);
  if (!event) return grpc::Status::OK;
  if (const auto* error = std::get_if<v1::StageError>(&*event)) return StageErrorStatus(*error, context_);
  if (const auto* credit = std::get_if<Mailbox::Credit>(&*event)) {
    credit_ += credit->tokens;
  } else {
    message = std::get<v1::ReturnRequest>(*std::move(event));
  }
  return grpc::Status::OK;
}

grpc::Status Generation::WriteToken(int32_t token) {
  v1::GenerateResponse response;
  v1::Token& out = *response.mutable_token();
  out.set_id(token);
  out.set_position(static_cast<int32_t>(tokens_.size() - 1));
  out.set_piece(core_.engine().TokenPiece(token));
  ++generated_;
  return Write(response) ? grpc::Status::OK : grpc::Status::CANCELLED;
}

grpc::Status Generation::Finish(v1::FinishReason reason) {
  v1::GenerateResponse response;
  v1::Finished& finished = *response.mutable_finished();
  finished.set_reason(reason);
  finished.set_prompt_tokens(static_cast<uint32_t>(prompt_tokens_));
  finished.set_generated_tokens(generated_);
  finished.set_prefill_us(Microseconds(first_token_ - started_));
  finished.set_decode_us(Microseconds(last_token_ - first_token_ - waited_));
  return Write(response) ? grpc::Status::OK : grpc::Status::CANCELLED;
}

}  // namespace dgr
