#include "reference/reference_service.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "engine/llama_text.h"

namespace dgr {
namespace {

// Bytes of values in one message, unless a single row is larger.
constexpr size_t kMessageBytes = 1u << 20;

// How often a wait looks whether the client is still there.
constexpr auto kCancellationCheck = std::chrono::milliseconds(50);

grpc::Status ToGrpc(const absl::Status& status) {
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

// Hands `values` out in runs of whole rows.
template <typename Handle>
bool ForRowRuns(const std::vector<float>& values, size_t row_values, Handle handle) {
  const size_t rows = values.size() / row_values;
  const size_t step = std::max<size_t>(1, kMessageBytes / (row_values * sizeof(float)));
  for (size_t row = 0; row < rows; row += step) {
    const size_t count = std::min(step, rows - row);
    if (!handle(row, count, values.data() + row * row_values, count * row_values * sizeof(float))) return false;
  }
  return true;
}

bool WriteCall(const WholeModel& whole, const v1::DecodeCall& call, size_t index, const CallOutput& output,
               grpc::ServerWriter<v1::ReplayResponse>& writer) {
  const BoundaryAdapter& adapter = whole.adapter();
  for (const auto& [cut, values] : output.residuals) {
    const bool written = ForRowRuns(values, adapter.row_values(), [&](size_t row, size_t rows, const float* data, size_t bytes) {
      v1::ReplayResponse response;
      response.set_call_index(static_cast<uint32_t>(index));
      v1::ResidualRows& out = *response.mutable_residual();
      out.set_cut(cut);
      out.set_row_begin(static_cast<uint32_t>(row));
      out.set_rows(static_cast<uint32_t>(rows));
      out.set_streams(adapter.streams);
      out.set_width(adapter.width);
      out.set_values(data, bytes);
      return writer.Write(response);
    });
    if (!written) return false;
  }
  for (int sequence = 0; sequence < call.sequences_size(); ++sequence) {
    const v1::SequenceRows& input = call.sequences(sequence);
    const std::vector<float>& values = output.logits[static_cast<size_t>(sequence)];
    const size_t first = static_cast<size_t>(input.positions_size()) - values.size() / whole.vocabulary();
    const bool written = ForRowRuns(values, whole.vocabulary(), [&](size_t row, size_t rows, const float* data, size_t bytes) {
      v1::ReplayResponse response;
      response.set_call_index(static_cast<uint32_t>(index));
      v1::LogitsRows& out = *response.mutable_logits();
      out.set_first_position(input.positions(static_cast<int>(first + row)));
      out.set_rows(static_cast<uint32_t>(rows));
      out.set_vocabulary(whole.vocabulary());
      out.set_values(data, bytes);
      return writer.Write(response);
    });
    if (!written) return false;
  }
  return true;
}

uint64_t Microseconds(std::chrono::steady_clock::duration duration) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(duration).count());
}

// Turns the tokens of one greedy generation into responses, by the same rules as a route's head.
class Answer {
 public:
  using Clock = std::chrono::steady_clock;

  Answer(const WholeModel& whole, const v1::ReferenceGenerateRequest& request, size_t prompt_tokens, Credit& credit,
         grpc::ServerContext& context, grpc::ServerWriter<v1::ReferenceGenerateResponse>& writer)
      : whole_(whole),
        request_(request),
        prompt_tokens_(static_cast<uint32_t>(prompt_tokens)),
        credit_(credit),
        context_(context),
        writer_(writer) {}

  // False: no more tokens are wanted.
  bool Take(int32_t token) {
    last_ = Clock::now();
    if (first_ == Clock::time_point()) first_ = last_;
    if (!request_.ignore_end_of_generation() && EndsGeneration(whole_.model(), token)) {
      return Finish(v1::FINISH_REASON_END_OF_GENERATION);
    }
    v1::ReferenceGenerateResponse response;
    response.mutable_token()->set_id(token);
    response.mutable_token()->set_position(static_cast<int32_t>(prompt_tokens_ + generated_));
    response.mutable_token()->set_piece(TokenPiece(whole_.model(), token));
    ++generated_;
    if (context_.IsCancelled() || !writer_.Write(response)) return false;
    if (generated_ == request_.max_tokens()) return Finish(v1::FINISH_REASON_MAX_TOKENS);
    credit_.Spend();
    return AwaitCredit();
  }

 private:
  bool AwaitCredit() {
    if (credit_.Await(std::chrono::milliseconds(0))) return true;
    while (!credit_.Await(kCancellationCheck)) {
      if (context_.IsCancelled()) return false;
    }
    waited_ += Clock::now() - last_;
    return true;
  }

  bool Finish(v1::FinishReason reason) {
    v1::ReferenceGenerateResponse response;
    v1::Finished& finished = *response.mutable_finished();
    finished.set_reason(reason);
    finished.set_prompt_tokens(prompt_tokens_);
    finished.set_generated_tokens(generated_);
    finished.set_prefill_us(Microseconds(first_ - started_));
    finished.set_decode_us(Microseconds(last_ - first_ - waited_));
    writer_.Write(response);
    return false;
  }

  const WholeModel& whole_;
  const v1::ReferenceGenerateRequest& request_;
  const uint32_t prompt_tokens_;
  Credit& credit_;
  grpc::ServerContext& context_;
  grpc::ServerWriter<v1::ReferenceGenerateResponse>& writer_;
  uint32_t generated_ = 0;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point first_, last_;
  Clock::duration waited_{};  // for credit
};

}  // namespace

grpc::Status ReferenceService::Describe(grpc::ServerContext*, const v1::ReferenceDescribeRequest*,
                                        v1::ReferenceDescribeResponse* response) {
  response->set_layer_count(whole_.layer_count());
  response->set_architecture(Architecture(whole_.model()));
  response->set_streams(whole_.adapter().streams);
  response->set_width(whole_.adapter().width);
  response->set_vocabulary(whole_.vocabulary());
  response->set_context_per_session(whole_.config().context);
  response->set_ubatch(whole_.config().ubatch);
  for (const auto& [field, value] : compatibility_) (*response->mutable_compatibility())[field] = value;
  response->set_pid(getpid());
  return grpc::Status::OK;
}

grpc::Status ReferenceService::Replay(grpc::ServerContext* context, const v1::ReplayRequest* request,
                                      grpc::ServerWriter<v1::ReplayResponse>* writer) {
  const std::lock_guard lock(whole_.mutex);
  std::vector<const v1::DecodeCall*> calls;
  for (const v1::DecodeCall& call : request->calls()) calls.push_back(&call);
  const std::set<uint32_t> cuts(request->cuts().begin(), request->cuts().end());
  return ToGrpc(whole_.Replay(calls, cuts, [&](size_t index, const CallOutput& output) {
    if (context->IsCancelled() || !WriteCall(whole_, *calls[index], index, output, *writer)) {
      return absl::CancelledError("the client is gone");
    }
    return absl::OkStatus();
  }));
}

absl::StatusOr<std::vector<int32_t>> ReferenceService::PromptTokens(const v1::ReferenceGenerateRequest& request) const {
  const v1::Prompt& prompt = request.prompt();
  if (prompt.has_tokens()) return std::vector<int32_t>(prompt.tokens().ids().begin(), prompt.tokens().ids().end());
  return Tokenize(whole_.model(), prompt.text(), prompt.chat_template(), whole_.config().context);
}

grpc::Status ReferenceService::Generate(grpc::ServerContext* context, const v1::ReferenceGenerateRequest* request,
                                        grpc::ServerWriter<v1::ReferenceGenerateResponse>* writer) {
  const absl::StatusOr<std::vector<int32_t>> tokens = PromptTokens(*request);
  if (!tokens.ok()) return ToGrpc(tokens.status());
  if (tokens->empty()) return {grpc::StatusCode::INVALID_ARGUMENT, "the prompt holds no token"};
  for (const int32_t token : *tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= whole_.vocabulary()) {
      return {grpc::StatusCode::INVALID_ARGUMENT, absl::StrCat("token id ", token, " is outside the vocabulary")};
    }
  }
  if (tokens->size() + std::max(request->max_tokens(), 1u) - 1 > whole_.config().context) {
    return {grpc::StatusCode::RESOURCE_EXHAUSTED,
            absl::StrCat("the prompt and max_tokens need more than context = ", whole_.config().context)};
  }
  v1::ReferenceGenerateResponse prompt;
  prompt.mutable_prompt_tokens()->mutable_ids()->Add(tokens->begin(), tokens->end());
  if (!writer->Write(prompt)) return grpc::Status::CANCELLED;
  if (request->max_tokens() == 0) return grpc::Status::OK;
  const std::lock_guard lock(whole_.mutex);
  Credit credit(request->credit());
  SetUnderWay(&credit);
  Answer answer(whole_, *request, tokens->size(), credit, *context, *writer);
  const absl::Status status = whole_.Generate(*tokens, [&](int32_t token) { return answer.Take(token); });
  SetUnderWay(nullptr);
  return ToGrpc(status);
}

grpc::Status ReferenceService::Grant(grpc::ServerContext*, const v1::ReferenceGrantRequest* request,
                                     v1::ReferenceGrantResponse*) {
  if (request->tokens() == 0) return {grpc::StatusCode::INVALID_ARGUMENT, "tokens must be at least 1"};
  const std::lock_guard lock(under_way_mutex_);
  if (under_way_ == nullptr) return {grpc::StatusCode::NOT_FOUND, "no generation is under way"};
  under_way_->Grant(request->tokens());
  return grpc::Status::OK;
}

void ReferenceService::SetUnderWay(Credit* credit) {
  const std::lock_guard lock(under_way_mutex_);
  under_way_ = credit;
}

}  // namespace dgr
