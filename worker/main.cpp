// dgr-worker: serves one stage of a route.
#include <cstdio>
#include <string>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "engine/roster.h"
#include "support/identity.h"
#include "support/lifeline.h"
#include "support/log.h"
#include "support/options.h"
#include "support/serve.h"
#include "transport/stage_service.h"
#include "transport/worker_service.h"

ABSL_FLAG(std::string, layers, "", "BEGIN:END, the half-open layer range this stage owns");
ABSL_FLAG(std::string, wire, "f32", "Type of boundary values between stages: f32 or bf16");
ABSL_FLAG(uint32_t, fragment_bytes, 1u << 20, "Payload of a boundary frame at most, in bytes");
ABSL_FLAG(bool, any_architecture, false, "Serve an architecture that the roster does not allow, to find out whether it could");
ABSL_FLAG(std::string, compute_gate, "", "File by which the workers of one machine that share processors take turns computing");
ABSL_FLAG(uint32_t, gate_seconds, 0, "Longest wait for a turn at the compute gate, in seconds; 0: without end");

namespace {

absl::StatusOr<dgr::v1::DType> ParseWire(const std::string& wire) {
  if (wire == "f32") return dgr::v1::DTYPE_F32;
  if (wire == "bf16") return dgr::v1::DTYPE_BF16;
  return absl::InvalidArgumentError(absl::StrCat("--wire is '", wire, "'; it must be f32 or bf16"));
}

dgr::StageConfig MakeConfig(const dgr::CommonOptions& options, const dgr::EngineShape& shape, dgr::v1::DType wire) {
  dgr::StageConfig config;
  config.bounds = {options.engine.sessions, options.engine.context};
  config.allow_probes = options.allow_probes;
  config.boundary.adapter = shape.adapter;
  config.boundary.token_ids = shape.boundary_token_ids;
  config.boundary.dtype = wire;
  config.boundary.streams = shape.streams;
  config.boundary.width = shape.width;
  config.boundary.vocabulary = shape.vocabulary;
  config.boundary.ubatch = options.engine.ubatch;
  config.boundary.fragment_bytes = absl::GetFlag(FLAGS_fragment_bytes);
  config.compatibility = dgr::ExecutionDocument(options, shape.architecture);
  config.compatibility["boundary.adapter"] = shape.adapter;
  config.compatibility["boundary.schema"] = absl::StrCat(dgr::kBoundarySchema);
  config.compatibility["boundary.wire"] = wire == dgr::v1::DTYPE_F32 ? "f32" : "bf16";
  config.compatibility["runtime.stack"] = dgr::Identity().stack;
  return config;
}

absl::Status Run(int argc, char** argv) {
  absl::SetProgramUsageMessage("serves one stage of a route");
  absl::StatusOr<dgr::CommonOptions> options = dgr::ParseOptions(argc, argv);
  if (!options.ok()) return options.status();
  absl::StatusOr<dgr::LayerRange> layers = dgr::ParseLayerRange(absl::GetFlag(FLAGS_layers));
  if (!layers.ok()) return layers.status();
  absl::StatusOr<dgr::v1::DType> wire = ParseWire(absl::GetFlag(FLAGS_wire));
  if (!wire.ok()) return wire.status();
  const uint32_t fragment = absl::GetFlag(FLAGS_fragment_bytes);
  if (fragment < 1024 || fragment > dgr::kMaxMessageBytes / 2) {
    return absl::InvalidArgumentError("--fragment_bytes must lie between 1 KiB and 32 MiB");
  }
  options->engine.layers = *layers;
  options->engine.compute_gate = absl::GetFlag(FLAGS_compute_gate);
  options->engine.gate_seconds = absl::GetFlag(FLAGS_gate_seconds);
  if (options->supervisor != 0) {
    if (absl::Status status = dgr::DieWithSupervisor(options->supervisor); !status.ok()) return status;
    dgr::WatchLifeline(&dgr::Server::Stop);
  }

  const std::string architecture = dgr::ReadArchitecture(options->engine.model);
  const bool any_architecture = absl::GetFlag(FLAGS_any_architecture);
  if (any_architecture && !options->allow_probes) {
    return absl::InvalidArgumentError("--any_architecture is for certification: it needs --allow_probes");
  }
  if (!architecture.empty() && !any_architecture) {
    if (absl::Status status = dgr::CheckArchitecture(architecture); !status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<dgr::ShardEngine>> engine = dgr::LoadLlamaEngine(options->engine);
  if (!engine.ok()) return engine.status();
  const dgr::EngineShape shape = (*engine)->shape();
  dgr::StageCore core(*std::move(engine), MakeConfig(*options, shape, *wire));
  dgr::WorkerService worker(core);
  dgr::StageService stage(core);
  absl::StatusOr<std::unique_ptr<dgr::Server>> server = dgr::Server::Start(
      options->listen, {{dgr::v1::Worker::service_full_name(), &worker}, {dgr::v1::Stage::service_full_name(), &stage}});
  if (!server.ok()) return server.status();
  dgr::Log(absl::StrCat("stage [", shape.range.begin, ", ", shape.range.end, ") of ", shape.layer_count, " layers of ",
                        shape.architecture, " on ", (*server)->address()));
  (*server)->ServeUntilStopped([&core] { core.Drain(); });
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  dgr::BlockStopSignals();
  dgr::QuietLlamaLog();
  const absl::Status status = Run(argc, argv);
  return status.ok() ? 0 : dgr::ReportStartFailure(status);
}
