#include "transport/links.h"

namespace dgr {

ForwardLink::ForwardLink(const std::string& address, std::function<void(const v1::ForwardResponse&)> failed,
                         std::function<void(const ForwardLink*, absl::Status)> down)
    : link_(
          address, [](v1::Stage::Stub& stub, grpc::ClientContext* context) { return stub.Forward(context); }, std::move(failed),
          [this, down = std::move(down)](absl::Status status) { down(this, std::move(status)); }) {}

ReturnLink::ReturnLink(const std::string& address, std::function<void(const ReturnLink*, absl::Status)> down)
    : link_(
          address, [](v1::Stage::Stub& stub, grpc::ClientContext* context) { return stub.Return(context); },
          [](const v1::ReturnResponse&) {},
          [this, down = std::move(down)](absl::Status status) { down(this, std::move(status)); }) {}

}  // namespace dgr
