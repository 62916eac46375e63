#include "support/options.h"

#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "support/identity.h"

ABSL_FLAG(std::string, model, "", "First file of the GGUF set");
ABSL_FLAG(std::string, listen, "127.0.0.1:0", "host:port to serve on; port 0 picks a free one");
ABSL_FLAG(std::string, model_digest, "", "SHA-256 of the model set, as the launcher verified it");
ABSL_FLAG(uint32_t, context, 2048, "Positions per session");
ABSL_FLAG(uint32_t, sessions, 4, "Sessions at once, 1 to 256");
ABSL_FLAG(uint32_t, ubatch, 128, "Rows of one decode call");
ABSL_FLAG(uint32_t, threads, 1, "Compute threads");
ABSL_FLAG(std::string, flash_attention, "on", "on or off");
ABSL_FLAG(std::string, kv_type_k, "f16", "Type of cached keys: f32, f16 or q8_0");
ABSL_FLAG(std::string, kv_type_v, "f16", "Type of cached values: f32, f16 or q8_0");
ABSL_FLAG(int32_t, supervisor, 0, "Process that started this one: end when it ends or when standard input reaches end-of-file");
ABSL_FLAG(bool, allow_probes, false, "Permit taps and logits, for certification");

namespace dgr {
namespace {

// absl knows options by identifiers: --kv-type-k becomes --kv_type_k.
void NormaliseName(char* argument) {
  if (argument[0] != '-' || argument[1] != '-') return;
  for (char* c = argument + 2; *c != '\0' && *c != '='; ++c) {
    if (*c == '-') *c = '_';
  }
}

const char* CacheTypeName(CacheType type) {
  switch (type) {
    case CacheType::kF32: return "f32";
    case CacheType::kF16: return "f16";
    case CacheType::kQ8_0: return "q8_0";
  }
  return "";
}

absl::StatusOr<CacheType> ParseCacheType(const char* option, const std::string& text) {
  if (text == "f32") return CacheType::kF32;
  if (text == "f16") return CacheType::kF16;
  if (text == "q8_0") return CacheType::kQ8_0;
  return absl::InvalidArgumentError(absl::StrCat("--", option, " is '", text, "'; it must be f32, f16 or q8_0"));
}

absl::Status CheckRange(const char* option, uint32_t value, uint32_t low, uint32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--", option, " is ", value, "; it must lie between ", low, " and ", high));
}

absl::Status CheckBounds(const EngineConfig& engine) {
  absl::Status status = CheckRange("context", engine.context, 1, 1u << 24);
  status.Update(CheckRange("sessions", engine.sessions, 1, 256));  // llama.cpp's LLAMA_MAX_SEQ
  status.Update(CheckRange("ubatch", engine.ubatch, 1, 1u << 16));
  status.Update(CheckRange("threads", engine.threads, 1, 512));
  if (status.ok() && uint64_t{engine.context} * engine.sessions > (1u << 30)) {
    status = absl::InvalidArgumentError("--context times --sessions is more than 2^30 positions");
  }
  return status;
}

}  // namespace

std::map<std::string, std::string> ExecutionDocument(const CommonOptions& options, const std::string& architecture) {
  const BuildIdentity identity = Identity();
  return {
      {"model.sha256", options.model_digest},
      {"model.architecture", architecture},
      {"runtime.pin", identity.pin},
      {"runtime.lane", identity.lane},
      {"runtime.isa", identity.isa},
      {"execution.context", absl::StrCat(options.engine.context)},
      {"execution.ubatch", absl::StrCat(options.engine.ubatch)},
      {"execution.flash_attention", options.engine.flash_attention ? "on" : "off"},
      {"execution.kv_type_k", CacheTypeName(options.engine.kv_type_k)},
      {"execution.kv_type_v", CacheTypeName(options.engine.kv_type_v)},
  };
}

absl::StatusOr<LayerRange> ParseLayerRange(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  LayerRange range;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &range.begin) || !absl::SimpleAtoi(parts[1], &range.end)) {
    return absl::InvalidArgumentError(absl::StrCat("--layers is '", text, "'; it must be BEGIN:END"));
  }
  if (range.begin >= range.end) {
    return absl::InvalidArgumentError(absl::StrCat("--layers ", text, " is empty; BEGIN must be below END"));
  }
  return range;
}

absl::StatusOr<CommonOptions> ParseOptions(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) NormaliseName(argv[i]);
  const std::vector<char*> positional = absl::ParseCommandLine(argc, argv);
  if (positional.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("'", positional[1], "' is not an option; see --help"));
  }
  CommonOptions options;
  options.engine.model = absl::GetFlag(FLAGS_model);
  options.engine.context = absl::GetFlag(FLAGS_context);
  options.engine.sessions = absl::GetFlag(FLAGS_sessions);
  options.engine.ubatch = absl::GetFlag(FLAGS_ubatch);
  options.engine.threads = absl::GetFlag(FLAGS_threads);
  options.listen = absl::GetFlag(FLAGS_listen);
  options.model_digest = absl::GetFlag(FLAGS_model_digest);
  options.supervisor = absl::GetFlag(FLAGS_supervisor);
  options.allow_probes = absl::GetFlag(FLAGS_allow_probes);
  if (options.engine.model.empty()) return absl::InvalidArgumentError("--model is missing");

  const std::string flash = absl::GetFlag(FLAGS_flash_attention);
  if (flash != "on" && flash != "off") {
    return absl::InvalidArgumentError(absl::StrCat("--flash_attention is '", flash, "'; it must be on or off"));
  }
  options.engine.flash_attention = flash == "on";
  if (absl::Status status = CheckBounds(options.engine); !status.ok()) return status;

  absl::StatusOr<CacheType> k = ParseCacheType("kv_type_k", absl::GetFlag(FLAGS_kv_type_k));
  if (!k.ok()) return k.status();
  absl::StatusOr<CacheType> v = ParseCacheType("kv_type_v", absl::GetFlag(FLAGS_kv_type_v));
  if (!v.ok()) return v.status();
  options.engine.kv_type_k = *k;
  options.engine.kv_type_v = *v;
  return options;
}

}  // namespace dgr
