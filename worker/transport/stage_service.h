// dgr.v1.Stage: what other workers call.
#pragma once

#include "dgr/v1/stage.grpc.pb.h"
#include "session/stage_core.h"

namespace dgr {

class StageService final : public v1::Stage::Service {
 public:
  explicit StageService(StageCore& core) : core_(core) {}

  grpc::Status Forward(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::ForwardResponse, v1::ForwardRequest>* stream) override;
  grpc::Status Return(grpc::ServerContext* context,
                      grpc::ServerReaderWriter<v1::ReturnResponse, v1::ReturnRequest>* stream) override;

 private:
  StageCore& core_;
};

}  // namespace dgr
