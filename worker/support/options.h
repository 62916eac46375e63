// The command line that dgr-worker and dgr-reference share.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine_config.h"

namespace dgr {

struct CommonOptions {
  EngineConfig engine;
  std::string listen;        // host:port; port 0 picks one
  std::string model_digest;  // SHA-256 of the model set, verified by whoever starts this program
  pid_t supervisor = 0;      // the process that started this one and must not be outlived; 0: none
  bool allow_probes = false;
};

// Parses the command line. In option names a dash is the same as an underscore. Prints usage and exits on --help and on an
// unknown option, as absl does; INVALID_ARGUMENT names any other offender.
absl::StatusOr<CommonOptions> ParseOptions(int argc, char** argv);

// The part of the compatibility document that every program of a lane has: model, runtime and execution.
std::map<std::string, std::string> ExecutionDocument(const CommonOptions& options, const std::string& architecture);

// "15:30" → [15, 30).
absl::StatusOr<LayerRange> ParseLayerRange(const std::string& text);

}  // namespace dgr
