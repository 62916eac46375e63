// dgr.v1.Reference.
#pragma once

#include "dgr/v1/reference.grpc.pb.h"
#include "reference/credit.h"
#include "reference/whole_model.h"

namespace dgr {

class ReferenceService final : public v1::Reference::Service {
 public:
  ReferenceService(WholeModel& whole, std::map<std::string, std::string> compatibility)
      : whole_(whole), compatibility_(std::move(compatibility)) {}

  grpc::Status Describe(grpc::ServerContext* context, const v1::ReferenceDescribeRequest* request,
                        v1::ReferenceDescribeResponse* response) override;
  grpc::Status Replay(grpc::ServerContext* context, const v1::ReplayRequest* request,
                      grpc::ServerWriter<v1::ReplayResponse>* writer) override;
  grpc::Status Generate(grpc::ServerContext* context, const v1::ReferenceGenerateRequest* request,
                        grpc::ServerWriter<v1::ReferenceGenerateResponse>* writer) override;
  grpc::Status Grant(grpc::ServerContext* context, const v1::ReferenceGrantRequest* request,
                     v1::ReferenceGrantResponse* response) override;

 private:
  void SetUnderWay(Credit* credit);
  absl::StatusOr<std::vector<int32_t>> PromptTokens(const v1::ReferenceGenerateRequest& request) const;

  WholeModel& whole_;
  const std::map<std::string, std::string> compatibility_;
  std::mutex under_way_mutex_;
  Credit* under_way_ = nullptr;  // of the generation under way
};

}  // namespace dgr
