#include "transport/worker_service.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <optional>

#include "transport/generation.h"
#include "transport/status.h"

namespace dgr {
namespace {

constexpr auto kCancellationCheck = std::chrono::milliseconds(50);

// proc(5), statm: the second field counts resident pages.
uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0;
  uint64_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

grpc::Status Pump(grpc::ServerContext& context, dgr::Tap& tap, grpc::ServerWriter<v1::TapResponse>& writer) {
  while (!context.IsCancelled()) {
    if (const std::optional<v1::TapResponse> message = tap.Take(kCancellationCheck)) {
      if (!writer.Write(*message)) return grpc::Status::CANCELLED;
      continue;
    }
    switch (tap.state()) {
      case dgr::Tap::State::kOpen: break;
      case dgr::Tap::State::kEnded: return grpc::Status::OK;
      case dgr::Tap::State::kOverrun:
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "the tap was not read fast enough; it is incomplete"};
    }
  }
  return grpc::Status::CANCELLED;
}

}  // namespace

grpc::Status WorkerService::Describe(grpc::ServerContext*, const v1::DescribeRequest*, v1::DescribeResponse* response) {
  const EngineShape& shape = core_.engine().shape();
  response->mutable_range()->set_begin(shape.range.begin);
  response->mutable_range()->set_end(shape.range.end);
  response->set_layer_count(shape.layer_count);
  response->set_architecture(shape.architecture);
  response->set_adapter(shape.adapter);
  response->set_streams(shape.streams);
  response->set_width(shape.width);
  response->set_vocabulary(shape.vocabulary);
  for (const auto& [field, value] : core_.config().compatibility) (*response->mutable_compatibility())[field] = value;
  response->set_max_sessions(core_.config().bounds.sessions);
  response->set_open_sessions(core_.sessions().open_sessions());
  response->set_context_per_session(core_.config().bounds.context);
  response->set_ubatch(core_.config().boundary.ubatch);
  response->set_resident_bytes(ResidentBytes());
  response->set_pid(getpid());
  response->set_boundary_token_ids(shape.boundary_token_ids);
  return grpc::Status::OK;
}

grpc::Status WorkerService::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                     grpc::ServerWriter<v1::GenerateResponse>* writer) {
  return Generation(core_, *request, *context, *writer).Run();
}

grpc::Status WorkerService::Grant(grpc::ServerContext*, const v1::GrantRequest* request, v1::GrantResponse*) {
  return ToGrpc(core_.Grant(request->session(), request->tokens()));
}

grpc::Status WorkerService::Tap(grpc::ServerContext* context, const v1::TapRequest* request,
                                grpc::ServerWriter<v1::TapResponse>* writer) {
  if (!core_.config().allow_probes) {
    return {grpc::StatusCode::PERMISSION_DENIED, "taps are only given by workers started with --allow-probes"};
  }
  const std::shared_ptr<dgr::Tap> tap = core_.taps().Open(request->session());
  if (!tap) return {grpc::StatusCode::ALREADY_EXISTS, "this session has a tap on this stage already"};
  v1::TapResponse opened;
  opened.mutable_opened();
  grpc::Status status = writer->Write(opened) ? Pump(*context, *tap, *writer) : grpc::Status::CANCELLED;
  core_.taps().Remove(request->session());
  return status;
}

}  // namespace dgr
