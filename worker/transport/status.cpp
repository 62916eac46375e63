#include "transport/status.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace dgr {

grpc::Status ToGrpc(const absl::Status& status) {
  // The codes of both are google.rpc.Code.
  return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
}

v1::StageError MakeStageError(const google::protobuf::RepeatedPtrField<v1::RouteStage>& stages, uint32_t index,
                              const absl::Status& status) {
  v1::StageError error;
  error.set_stage_index(index);
  if (index < static_cast<uint32_t>(stages.size())) {
    *error.mutable_range() = stages[static_cast<int>(index)].range();
    error.set_address(stages[static_cast<int>(index)].address());
  }
  error.set_code(static_cast<int32_t>(status.code()));
  error.set_message(std::string(status.message()));
  return error;
}

grpc::Status StageErrorStatus(const v1::StageError& error, grpc::ServerContext& context) {
  context.AddTrailingMetadata(kStageErrorKey, error.SerializeAsString());
  return {static_cast<grpc::StatusCode>(error.code()),
          absl::StrCat("stage ", error.stage_index(), " [", error.range().begin(), ", ", error.range().end(), ") at ",
                       error.address(), ": ", error.message())};
}

}  // namespace dgr
