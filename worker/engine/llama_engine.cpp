#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/boundary_adapter.h"
#include "engine/compute_gate.h"
#include "engine/lean_stage.h"
#include "engine/llama_runtime.h"
#include "engine/llama_text.h"
#include "engine/model_files.h"
#include "engine/shard_engine.h"
#include "llama-ext.h"

namespace dgr {
namespace {

bool AllFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

// llama_batch with the memory it points to.
class Batch {
 public:
  Batch(const SequenceInput& input, bool is_tail)
      : tokens_(input.token_ids.begin(), input.token_ids.end()),
        residual_(input.residual.begin(), input.residual.end()),
        positions_(input.positions.begin(), input.positions.end()),
        slot_(static_cast<llama_seq_id>(input.slot)),
        slots_(positions_.size(), &slot_),
        slot_counts_(positions_.size(), 1),
        outputs_(positions_.size(), 0) {
    // Before the tail every row is an output: only then does llama.cpp hand out residuals in batch order.
    if (!is_tail || input.outputs == OutputRows::kAll) {
      std::fill(outputs_.begin(), outputs_.end(), int8_t{1});
    } else if (input.outputs == OutputRows::kLast) {
      outputs_.back() = 1;
    }
    batch_.n_tokens = static_cast<int32_t>(positions_.size());
    // Both, where the layers after the head look at the tokens as well.
    if (!tokens_.empty()) batch_.token = tokens_.data();
    if (!residual_.empty()) batch_.embd = residual_.data();
    batch_.pos = positions_.data();
    batch_.n_seq_id = slot_counts_.data();
    batch_.seq_id = slots_.data();
    batch_.logits = outputs_.data();
  }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  const llama_batch& get() const { return batch_; }

 private:
  std::vector<llama_token> tokens_;
  std::vector<float> residual_;
  std::vector<llama_pos> positions_;
  llama_seq_id slot_;
  std::vector<llama_seq_id*> slots_;
  std::vector<int32_t> slot_counts_;
  std::vector<int8_t> outputs_;
  llama_batch batch_{};
};

class LlamaEngine final : public ShardEngine {
 public:
  LlamaEngine(ModelFiles files, ModelPtr model, Runtime runtime, std::unique_ptr<ComputeGate> gate, EngineShape shape,
              uint32_t ubatch)
      : files_(std::move(files)),
        model_(std::move(model)),
        runtime_(std::move(runtime)),
        gate_(std::move(gate)),
        shape_(std::move(shape)),
        ubatch_(ubatch) {
    if (!shape_.tail()) llama_set_embeddings_nextn(runtime_.context.get(), true, /*masked=*/false);
  }

  const EngineShape& shape() const override { return shape_; }

  absl::StatusOr<DecodeOutput> Decode(const SequenceInput& input) override {
    if (absl::Status status = CheckInput(input); !status.ok()) return status;
    const Batch batch(input, shape_.tail());
    int32_t result = 0;
    {
      const absl::StatusOr<ComputeGate::Turn> turn = gate_->Enter();
      if (!turn.ok()) return turn.status();
      result = llama_decode(runtime_.context.get(), batch.get());
      llama_synchronize(runtime_.context.get());
    }
    if (absl::Status status = files_.Check(); !status.ok()) return status;
    if (absl::Status status = DecodeStatus(result); !status.ok()) return status;
    return shape_.tail() ? TakeLogits(batch.get()) : TakeResidual(input.positions.size());
  }

  absl::Status FreeSlot(uint32_t slot) override {
    if (!llama_memory_seq_rm(llama_get_memory(runtime_.context.get()), static_cast<llama_seq_id>(slot), -1, -1)) {
      return absl::InternalError(absl::StrCat("llama.cpp would not drop the state of slot ", slot));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& text, bool chat_template, uint32_t limit) const override {
    return dgr::Tokenize(model_.get(), text, chat_template, limit);
  }
  std::string TokenPiece(int32_t token) const override { return dgr::TokenPiece(model_.get(), token); }
  bool EndsGeneration(int32_t token) const override { return dgr::EndsGeneration(model_.get(), token); }

 private:
  absl::Status CheckInput(const SequenceInput& input) const {
    const size_t rows = input.positions.size();
    if (rows == 0 || rows > ubatch_) {
      return absl::InvalidArgumentError(absl::StrCat("a decode call takes 1 to ", ubatch_, " rows, not ", rows));
    }
    if (const size_t expected = shape_.takes_token_ids() ? rows : 0; input.token_ids.size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("this stage takes ", expected, " token ids for ", rows, " rows, not ", input.token_ids.size()));
    }
    for (const int32_t token : input.token_ids) {
      if (token < 0 || static_cast<uint32_t>(token) >= shape_.vocabulary) {
        return absl::InvalidArgumentError(absl::StrCat("token id ", token, " is outside the vocabulary of ", shape_.vocabulary));
      }
    }
    if (const size_t expected = shape_.head() ? 0 : rows * shape_.row_values(); input.residual.size() != expected) {
      return absl::InvalidArgumentError(
          absl::StrCat("this stage takes ", expected, " residual values for ", rows, " rows, not ", input.residual.size()));
    }
    return absl::OkStatus();
  }

  // https://github.com/ggml-org/llama.cpp, include/llama.h, llama_decode.
  static absl::Status DecodeStatus(int32_t result) {
    switch (result) {
      case 0: return absl::OkStatus();
      case 1: return absl::ResourceExhaustedError("the engine has no room left for this session's positions");
      case 2: return absl::InternalError("the computation was aborted");
      case -1: return absl::InvalidArgumentError("the engine refused the rows: repeated or gapped positions");
      case -2: return absl::InternalError("the backend ran out of memory");
      default: return absl::InternalError(absl::StrCat("the backend failed (llama_decode returned ", result, ")"));
    }
  }

  absl::StatusOr<DecodeOutput> TakeResidual(size_t rows) const {
    const float* values = llama_get_embeddings_nextn(runtime_.context.get());
    if (values == nullptr) return absl::InternalError("the engine gave no residual");
    DecodeOutput output;
    output.residual.assign(values, values + rows * shape_.row_values());
    if (!AllFinite(output.residual)) return absl::InternalError("the engine gave a residual that is not finite");
    return output;
  }

  absl::StatusOr<DecodeOutput> TakeLogits(const llama_batch& batch) const {
    DecodeOutput output;
    for (int32_t row = 0; row < batch.n_tokens; ++row) {
      if (batch.logits[row] == 0) continue;
      const float* values = llama_get_logits_ith(runtime_.context.get(), row);
      if (values == nullptr) return absl::InternalError(absl::StrCat("the engine gave no logits for row ", row));
      output.logits.insert(output.logits.end(), values, values + shape_.vocabulary);
    }
    if (!AllFinite(output.logits)) return absl::InternalError("the engine gave logits that are not finite");
    return output;
  }

  const ModelFiles files_;
  ModelPtr model_;
  Runtime runtime_;
  std::unique_ptr<ComputeGate> gate_;
  const EngineShape shape_;
  const uint32_t ubatch_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ShardEngine>> LoadLlamaEngine(const EngineConfig& config) {
  KeepHeapSmall();
  absl::StatusOr<std::unique_ptr<ComputeGate>> gate =
      ComputeGate::Open(config.compute_gate, std::chrono::seconds(config.gate_seconds));
  if (!gate.ok()) return gate.status();
  absl::StatusOr<ModelFiles> files = ModelFiles::Open(config.model);
  if (!files.ok()) return files.status();
  files->NameInSigbus();  // nothing is mapped yet, but from now on a file may shrink
  absl::StatusOr<ModelPtr> model = LoadModel(config);
  if (!model.ok()) return model.status();
  files->NameInSigbus();

  EngineShape shape;
  shape.architecture = Architecture(model->get());
  shape.layer_count = static_cast<uint32_t>(llama_model_n_layer(model->get()));
  shape.range = config.layers.value_or(LayerRange{0, shape.layer_count});
  const absl::StatusOr<BoundaryAdapter> adapter = AdapterOf(model->get());
  if (!adapter.ok()) return adapter.status();
  if (absl::Status status = CheckRows(model->get(), *adapter, shape.range); !status.ok()) return status;
  shape.adapter = adapter->id;
  shape.boundary_token_ids = adapter->token_ids;
  shape.streams = adapter->streams;
  shape.width = adapter->width;
  shape.vocabulary = VocabularySize(model->get());

  absl::StatusOr<Runtime> runtime = NewRuntime(model->get(), config);
  if (!runtime.ok()) return runtime.status();
  ReleaseLoadedPages(config.model, model->get());
  if (absl::Status status = files->Check(); !status.ok()) return status;
  return std::make_unique<LlamaEngine>(*std::move(files), *std::move(model), *std::move(runtime), *std::move(gate),
                                       std::move(shape), config.ubatch);
}

}  // namespace dgr
