#include "support/serve.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"
#include "support/log.h"

namespace dgr {
namespace {

constexpr int kExitUsage = 2;
constexpr int kExitRefused = 3;

sigset_t StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

// One JSON object on one line of stdout.
void PrintEvent(const google::protobuf::Struct& event) {
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(event, &json);
  if (!status.ok()) json = R"({"event":"error","code":"INTERNAL","message":"cannot print an event"})";
  std::printf("%s\n", json.c_str());
  std::fflush(stdout);
}

void Set(google::protobuf::Struct& event, const char* field, const std::string& value) {
  (*event.mutable_fields())[field].set_string_value(value);
}

}  // namespace

void BlockStopSignals() {
  const sigset_t set = StopSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const std::string& listen, const std::vector<NamedService>& services) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--listen is '", listen, "'; it must be HOST:PORT"));
  }
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // a second worker on the same port is a mistake
  // Peers ping each other every second to notice a vanished or frozen process within three.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 500);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 1500);
  builder.AddChannelArgument("grpc.http2.ping_timeout_ms", 1500);  // newer gRPC goes by this one, a minute by default
  // Only peers with a call under way: an idle client need not read, and must not lose its connection for not answering.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
  for (const auto& [name, service] : services) builder.RegisterService(service);

  auto server = std::make_unique<Server>();
  server->server_ = builder.BuildAndStart();
  if (!server->server_ || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": the port is taken, or the address is not of this machine"));
  }
  server->address_ = absl::StrCat(listen.substr(0, colon), ":", port);
  if (grpc::HealthCheckServiceInterface* health = server->server_->GetHealthCheckService()) {
    health->SetServingStatus(true);
    for (const auto& [name, service] : services) health->SetServingStatus(name, true);
  }
  return server;
}

void Server::ServeUntilStopped(const std::function<void()>& draining) {
  google::protobuf::Struct ready;
  Set(ready, "event", "ready");
  Set(ready, "address", address_);
  (*ready.mutable_fields())["pid"].set_number_value(getpid());
  PrintEvent(ready);

  const sigset_t set = StopSignals();
  int received = 0;
  sigwait(&set, &received);
  Log("ending: no new sessions, those under way are closed");
  if (grpc::HealthCheckServiceInterface* health = server_->GetHealthCheckService()) health->SetServingStatus(false);
  draining();
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(kGracefulSeconds));
  server_->Wait();
}

void Server::Stop() { kill(getpid(), SIGTERM); }

int ReportStartFailure(const absl::Status& status) {
  google::protobuf::Struct event;
  Set(event, "event", "error");
  Set(event, "code", absl::StatusCodeToString(status.code()));
  Set(event, "message", std::string(status.message()));
  PrintEvent(event);
  Log(status.message());
  return status.code() == absl::StatusCode::kInvalidArgument ? kExitUsage : kExitRefused;
}

}  // namespace dgr
