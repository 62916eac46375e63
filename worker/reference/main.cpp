// dgr-reference: the whole model on the unpatched llama.cpp, the oracle of certification.
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "reference/reference_service.h"
#include "support/lifeline.h"
#include "support/log.h"
#include "support/options.h"
#include "support/serve.h"

namespace {

absl::Status Run(int argc, char** argv) {
  absl::SetProgramUsageMessage("serves the whole model as the oracle of certification");
  absl::StatusOr<dgr::CommonOptions> options = dgr::ParseOptions(argc, argv);
  if (!options.ok()) return options.status();
  if (options->supervisor != 0) {
    if (absl::Status status = dgr::DieWithSupervisor(options->supervisor); !status.ok()) return status;
    dgr::WatchLifeline(&dgr::Server::Stop);
  }
  absl::StatusOr<std::unique_ptr<dgr::WholeModel>> whole = dgr::WholeModel::Load(options->engine);
  if (!whole.ok()) return whole.status();
  dgr::ReferenceService service(**whole, dgr::ExecutionDocument(*options, dgr::Architecture((*whole)->model())));
  absl::StatusOr<std::unique_ptr<dgr::Server>> server =
      dgr::Server::Start(options->listen, {{dgr::v1::Reference::service_full_name(), &service}});
  if (!server.ok()) return server.status();
  dgr::Log(absl::StrCat("reference of ", (*whole)->layer_count(), " layers on ", (*server)->address()));
  (*server)->ServeUntilStopped([] {});
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  dgr::BlockStopSignals();
  dgr::QuietLlamaLog();
  const absl::Status status = Run(argc, argv);
  return status.ok() ? 0 : dgr::ReportStartFailure(status);
}
