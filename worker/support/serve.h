// A gRPC server with health and reflection, from the port to the graceful end.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace dgr {

// Largest message either program takes or sends: one row of logits or a fragment is far below, a hostile length is cut off.
inline constexpr int kMaxMessageBytes = 64 * 1024 * 1024;

// How long calls under way may go on after SIGTERM, SIGINT or the end of the lifeline.
inline constexpr int kGracefulSeconds = 1;

class Server {
 public:
  // A service and the name that the health service knows it by.
  using NamedService = std::pair<const char*, grpc::Service*>;

  // Binds `listen` and serves. UNAVAILABLE: the port is taken or not ours to bind.
  // Call BlockStopSignals first, on the main thread, before any thread starts.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const std::string& listen, const std::vector<NamedService>& services);

  const std::string& address() const { return address_; }

  // Prints the ready line and serves until SIGTERM, SIGINT or Stop; `draining` runs once, before calls are cut off.
  void ServeUntilStopped(const std::function<void()>& draining);

  // From any thread.
  static void Stop();

 private:
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// Leaves SIGTERM and SIGINT to Server::ServeUntilStopped and ignores SIGPIPE.
void BlockStopSignals();

// The error line on stdout and the message on stderr; returns the exit code.
int ReportStartFailure(const absl::Status& status);

}  // namespace dgr
