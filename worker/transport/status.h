// absl::Status inside, grpc::Status and StageError on the wire.
#pragma once

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "dgr/v1/common.pb.h"

namespace dgr {

// Trailing metadata of Generate that holds a serialized StageError.
inline constexpr char kStageErrorKey[] = "dgr-stage-error-bin";

grpc::Status ToGrpc(const absl::Status& status);

// A failure of stage `index` of a route.
v1::StageError MakeStageError(const google::protobuf::RepeatedPtrField<v1::RouteStage>& stages, uint32_t index,
                              const absl::Status& status);

// "stage 1 [15, 30) at 127.0.0.1:4711: message", with the details attached to the call.
grpc::Status StageErrorStatus(const v1::StageError& error, grpc::ServerContext& context);

}  // namespace dgr
