#include "engine/llama_runtime.h"

#include <cstdio>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/lean_stage.h"
#include "support/log.h"

namespace dgr {
namespace {

// llama.cpp tells why it refused a file only in its log: errors are collected while a model loads.
class ErrorCollector {
 public:
  ErrorCollector() { llama_log_set(&ErrorCollector::Collect, this); }
  ~ErrorCollector() { QuietLlamaLog(); }
  ErrorCollector(const ErrorCollector&) = delete;
  ErrorCollector& operator=(const ErrorCollector&) = delete;

  std::string Text() {
    const std::lock_guard lock(mutex_);
    return absl::StrJoin(errors_, "; ");
  }

 private:
  static void Collect(ggml_log_level level, const char* text, void* self) {
    if (level < GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_CONT) return;
    std::fputs(text, stderr);
    if (level != GGML_LOG_LEVEL_ERROR) return;
    auto* collector = static_cast<ErrorCollector*>(self);
    const std::lock_guard lock(collector->mutex_);
    collector->errors_.emplace_back(absl::StripSuffix(text, "\n"));
  }

  std::mutex mutex_;
  std::vector<std::string> errors_;
};

ggml_type GgmlType(CacheType type) {
  switch (type) {
    case CacheType::kF32: return GGML_TYPE_F32;
    case CacheType::kF16: return GGML_TYPE_F16;
    case CacheType::kQ8_0: return GGML_TYPE_Q8_0;
  }
  return GGML_TYPE_F16;
}

llama_model_kv_override StageKey(const char* key, uint32_t value) {
  llama_model_kv_override override{};
  override.tag = LLAMA_KV_OVERRIDE_TYPE_INT;
  std::snprintf(override.key, sizeof override.key, "%s", key);
  override.val_i64 = value;
  return override;
}

}  // namespace

absl::StatusOr<ModelPtr> LoadModel(const EngineConfig& config) {
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.load_mtp = false;
  std::vector<llama_model_kv_override> overrides;
  if (config.layers) {
    // Both keys are always given, so that a file which holds such keys itself cannot choose a range.
    if (config.layers->begin > 0) overrides = WithoutVocabulary(config.model);
    overrides.insert(overrides.end(), {StageKey("stage.layer_begin", config.layers->begin),
                                       StageKey("stage.layer_end", config.layers->end), llama_model_kv_override{}});
    params.kv_overrides = overrides.data();
    params.progress_callback = [](float /*progress*/, void* path) {  // after every tensor
      ReleaseFilePages(*static_cast<const std::string*>(path));
      return true;
    };
    params.progress_callback_user_data = const_cast<std::string*>(&config.model);  // NOLINT: only read
  }
  ErrorCollector errors;
  ModelPtr model(llama_model_load_from_file(config.model.c_str(), params));
  if (!model) {
    return absl::FailedPreconditionError(absl::StrCat("cannot load ", config.model, ": ", errors.Text()));
  }
  return model;
}

absl::StatusOr<Runtime> NewRuntime(llama_model* model, const EngineConfig& config, ggml_backend_sched_eval_callback observe,
                                   void* user_data) {
  Runtime runtime;
  ggml_threadpool_params pool = ggml_threadpool_params_default(static_cast<int>(config.threads));
  pool.poll = 0;  // idle compute threads sleep: the stages of one machine take turns on its processors
  runtime.threads.reset(ggml_threadpool_new(&pool));
  if (!runtime.threads) return absl::ResourceExhaustedError("cannot start the compute threads");

  llama_context_params params = llama_context_default_params();
  params.n_ctx = config.context * config.sessions;
  params.n_batch = config.ubatch;
  params.n_ubatch = config.ubatch;
  params.n_seq_max = config.sessions;
  params.n_threads = static_cast<int32_t>(config.threads);
  params.n_threads_batch = static_cast<int32_t>(config.threads);
  params.flash_attn_type = config.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = GgmlType(config.kv_type_k);
  params.type_v = GgmlType(config.kv_type_v);
  params.kv_unified = false;  // a session's numbers must not depend on what else is cached
  params.swa_full = false;    // what left a layer's window is never looked at again: nothing is taken back
  params.no_perf = true;
  params.cb_eval = observe;
  params.cb_eval_user_data = user_data;

  ErrorCollector errors;
  runtime.context.reset(llama_init_from_model(model, params));
  if (!runtime.context) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot set up a context of ", config.sessions, " x ", config.context, " positions: ", errors.Text()));
  }
  if (llama_get_memory(runtime.context.get()) == nullptr) {
    return absl::FailedPreconditionError(
        "the model keeps no state between calls: it is an encoder or a diffusion model, not a decoder");
  }
  if (llama_n_ctx_seq(runtime.context.get()) < config.context) {
    return absl::FailedPreconditionError(absl::StrCat("a session holds ", llama_n_ctx_seq(runtime.context.get()),
                                                      " positions, fewer than the ", config.context, " asked for"));
  }
  llama_attach_threadpool(runtime.context.get(), runtime.threads.get(), runtime.threads.get());
  return runtime;
}

std::string Architecture(const llama_model* model) {
  char buffer[128] = {};
  const int32_t n = llama_model_meta_val_str(model, "general.architecture", buffer, sizeof buffer);
  return n < 0 ? std::string() : std::string(buffer);
}

}  // namespace dgr
