// A llama.cpp model with a context, set up the same way for the worker and for the reference, so that the two differ in the tree
// they are linked to and in nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine_config.h"
#include "ggml-cpu.h"
#include "llama.h"

namespace dgr {

struct LlamaDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
  void operator()(ggml_threadpool* pool) const { ggml_threadpool_free(pool); }
};

using ModelPtr = std::unique_ptr<llama_model, LlamaDeleter>;
using ContextPtr = std::unique_ptr<llama_context, LlamaDeleter>;
using ThreadPoolPtr = std::unique_ptr<ggml_threadpool, LlamaDeleter>;

// A context with the compute threads it runs on; the threads sleep between calls.
struct Runtime {
  ThreadPoolPtr threads;  // outlives the context
  ContextPtr context;
};

// FAILED_PRECONDITION with llama.cpp's own words when the file, the architecture or the layer range is refused.
absl::StatusOr<ModelPtr> LoadModel(const EngineConfig& config);

// `observe` sees every tensor as it is computed (ggml's evaluation callback); null: nobody looks.
absl::StatusOr<Runtime> NewRuntime(llama_model* model, const EngineConfig& config,
                                   ggml_backend_sched_eval_callback observe = nullptr, void* user_data = nullptr);

// general.architecture of the file.
std::string Architecture(const llama_model* model);

}  // namespace dgr
