// The whole model on the unpatched llama.cpp: replays decode calls and generates greedily.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dgr/v1/common.pb.h"
#include "engine/boundary_adapter.h"
#include "engine/engine_config.h"
#include "engine/llama_runtime.h"
#include "engine/model_files.h"

namespace dgr {

// What one decode call gave.
struct CallOutput {
  // For each cut, rows x streams x width in batch order.
  std::map<uint32_t, std::vector<float>> residuals;
  // For each sequence of the call, in order: output rows x vocabulary.
  std::vector<std::vector<float>> logits;
};

class WholeModel {
 public:
  static absl::StatusOr<std::unique_ptr<WholeModel>> Load(const EngineConfig& config);

  // Runs the calls on fresh state, handing out each call's output. The residual at cut c is what layer c-1 gave, read as it is
  // computed. Not for two threads at once; callers hold `mutex`.
  //   INVALID_ARGUMENT  a cut outside the model, a call that does not fit
  absl::Status Replay(absl::Span<const v1::DecodeCall* const> calls, const std::set<uint32_t>& cuts,
                      const std::function<absl::Status(size_t, const CallOutput&)>& handle);

  // Greedy: hands out each token as it is known, until `handle` says stop or the context is full. Prefill is cut into chunks of
  // one ubatch, and only the last row of the prompt is an output.
  absl::Status Generate(absl::Span<const int32_t> prompt, const std::function<bool(int32_t token)>& handle);

  const EngineConfig& config() const { return config_; }
  const llama_model* model() const { return model_.get(); }
  uint32_t layer_count() const { return static_cast<uint32_t>(llama_model_n_layer(model_.get())); }
  const BoundaryAdapter& adapter() const { return adapter_; }
  uint32_t vocabulary() const { return vocabulary_; }

  std::mutex mutex;

 private:
  // What the evaluation callback copies.
  struct Observed {
    std::set<std::string> wanted;
    std::map<std::string, std::vector<float>> values;
  };
  static bool Observe(ggml_tensor* tensor, bool ask, void* observed);

  WholeModel(ModelFiles files, ModelPtr model, BoundaryAdapter adapter, EngineConfig config);
  absl::Status EnsureReplayRuntime();
  std::string ResidualName(uint32_t cut) const;
  absl::StatusOr<std::vector<float>> LogitsOf(llama_context* context, int32_t row) const;

  const ModelFiles files_;
  ModelPtr model_;
  const BoundaryAdapter adapter_;
  const EngineConfig config_;
  const uint32_t vocabulary_;
  Runtime generating_;  // nobody looks: the whole model at its best
  Runtime replaying_;   // made when first needed
  Observed observed_;
};

}  // namespace dgr
