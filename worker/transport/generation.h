// One Generate call on a head: tokenize, open the route, prefill in chunks, decode greedily.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "dgr/v1/worker.pb.h"
#include "session/mailbox.h"
#include "session/stage_core.h"

namespace dgr {

class Generation {
 public:
  Generation(StageCore& core, const v1::GenerateRequest& request, grpc::ServerContext& context,
             grpc::ServerWriter<v1::GenerateResponse>& out);

  // Returns when the answer is complete, the client is gone or a stage failed. The session is then closed on all stages.
  grpc::Status Run();

 private:
  using Clock = std::chrono::steady_clock;

  grpc::Status CheckRequest() const;
  grpc::Status ReadPrompt();
  // The status for the client, with the remedy that `status` carries.
  grpc::Status Refuse(const absl::Status& status);
  grpc::Status OpenRoute();
  grpc::Status Prefill();
  grpc::Status Decode();

  void SubmitChunk(size_t begin, size_t rows, v1::Phase phase, v1::OutputRows outputs);
  // Waits for the next chunk's result, passing on logits that come before it.
  grpc::Status AwaitResult(v1::ChunkResult& result);
  grpc::Status Await(v1::ReturnRequest& message);
  // Returns at once where the client has allowed another token.
  grpc::Status AwaitCredit();
  // The next event within a short while, if there is one. Credit is taken in; what ends the generation is returned.
  grpc::Status TakeEvent(std::optional<v1::ReturnRequest>& message);
  bool Write(const v1::GenerateResponse& response) { return out_.Write(response); }
  grpc::Status WriteToken(int32_t token);
  grpc::Status Finish(v1::FinishReason reason);

  StageCore& core_;
  const v1::GenerateRequest& request_;
  grpc::ServerContext& context_;
  grpc::ServerWriter<v1::GenerateResponse>& out_;
  const std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>();

  std::shared_ptr<Session> session_;
  std::vector<int32_t> tokens_;  // prompt, then what was sampled; the index is the position
  size_t prompt_tokens_ = 0;
  uint64_t next_step_ = 0;
  uint32_t generated_ = 0;
  uint64_t credit_;  // tokens that may still be generated
  Clock::time_point started_, first_token_, last_token_;
  Clock::duration waited_{};  // for credit
};

}  // namespace dgr
