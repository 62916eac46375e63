#include "transport/stage_service.h"

#include <memory>
#include <mutex>

#include "transport/status.h"

namespace dgr {
namespace {

using ForwardStream = grpc::ServerReaderWriter<v1::ForwardResponse, v1::ForwardRequest>;

// The way back to the stage before, for as long as its stream lives.
class ForwardErrors final : public ErrorSink {
 public:
  explicit ForwardErrors(ForwardStream* stream) : stream_(stream) {}

  void SendError(const v1::SessionKey& session, const v1::StageError& error) override {
    v1::ForwardResponse response;
    *response.mutable_session() = session;
    *response.mutable_error() = error;
    const std::lock_guard lock(mutex_);
    if (stream_ != nullptr) stream_->Write(response);
  }

  void Detach() {
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
  }

 private:
  std::mutex mutex_;
  ForwardStream* stream_;
};

}  // namespace

grpc::Status StageService::Forward(grpc::ServerContext*, ForwardStream* stream) {
  const auto errors = std::make_shared<ForwardErrors>(stream);
  grpc::Status result = grpc::Status::OK;
  v1::ForwardRequest request;
  while (stream->Read(&request)) {
    switch (request.message_case()) {
      case v1::ForwardRequest::kOpen: {
        const auto session = core_.Open(request.open(), errors, nullptr);
        if (!session.ok()) {
          const v1::OpenSession& open = request.open();
          errors->SendError(open.session(), MakeStageError(open.stages(), open.stage_index(), session.status()));
        }
        continue;
      }
      case v1::ForwardRequest::kFrame: core_.Frame(request.frame(), *errors); continue;
      case v1::ForwardRequest::kClose: core_.Close(request.close().session(), *errors); continue;
      case v1::ForwardRequest::MESSAGE_NOT_SET: break;
    }
    result = {grpc::StatusCode::INVALID_ARGUMENT, "a ForwardRequest without a message this stage knows"};
    break;
  }
  core_.CloseAllFrom(errors.get());
  errors->Detach();
  return result;
}

grpc::Status StageService::Return(grpc::ServerContext*, grpc::ServerReaderWriter<v1::ReturnResponse, v1::ReturnRequest>* stream) {
  v1::ReturnRequest request;
  while (stream->Read(&request)) core_.Result(std::move(request));
  return grpc::Status::OK;
}

}  // namespace dgr
