// dgr.v1.Worker: what clients call.
#pragma once

#include "dgr/v1/worker.grpc.pb.h"
#include "session/stage_core.h"

namespace dgr {

class WorkerService final : public v1::Worker::Service {
 public:
  explicit WorkerService(StageCore& core) : core_(core) {}

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override;
  grpc::Status Grant(grpc::ServerContext* context, const v1::GrantRequest* request, v1::GrantResponse* response) override;
  grpc::Status Tap(grpc::ServerContext* context, const v1::TapRequest* request,
                   grpc::ServerWriter<v1::TapResponse>* writer) override;

 private:
  StageCore& core_;
};

}  // namespace dgr
