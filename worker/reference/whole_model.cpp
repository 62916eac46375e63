#include "reference/whole_model.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/llama_text.h"

namespace dgr {
namespace {

// llama_batch with the memory it points to.
class Batch {
 public:
  void Add(int32_t token, int32_t position, uint32_t slot, bool output) {
    tokens_.push_back(token);
    positions_.push_back(position);
    slots_.push_back(static_cast<llama_seq_id>(slot));
    outputs_.push_back(output ? 1 : 0);
  }

  llama_batch Get() {
    slot_pointers_.clear();
    for (llama_seq_id& slot : slots_) slot_pointers_.push_back(&slot);
    slot_counts_.assign(slots_.size(), 1);
    llama_batch batch{};
    batch.n_tokens = static_cast<int32_t>(tokens_.size());
    batch.token = tokens_.data();
    batch.pos = positions_.data();
    batch.n_seq_id = slot_counts_.data();
    batch.seq_id = slot_pointers_.data();
    batch.logits = outputs_.data();
    return batch;
  }

  bool is_output(size_t row) const { return outputs_[row] != 0; }
  size_t rows() const { return tokens_.size(); }

 private:
  std::vector<llama_token> tokens_;
  std::vector<llama_pos> positions_;
  std::vector<llama_seq_id> slots_;
  std::vector<int8_t> outputs_;
  std::vector<int32_t> slot_counts_;
  std::vector<llama_seq_id*> slot_pointers_;
};

// DATA_LOSS: a model file was changed since it was loaded.
absl::Status DecodeAll(const ModelFiles& files, llama_context* context, Batch& batch) {
  const int32_t result = llama_decode(context, batch.Get());
  if (result != 0) return absl::InternalError(absl::StrCat("llama_decode returned ", result));
  llama_synchronize(context);
  return files.Check();
}

void Forget(llama_context* context) { llama_memory_clear(llama_get_memory(context), true); }

absl::StatusOr<Batch> ToBatch(const v1::DecodeCall& call, const EngineConfig& config, uint32_t vocabulary) {
  Batch batch;
  for (const v1::SequenceRows& rows : call.sequences()) {
    if (rows.slot() >= config.sessions) {
      return absl::InvalidArgumentError(
          absl::StrCat("slot ", rows.slot(), " of a reference with ", config.sessions, " sessions"));
    }
    if (rows.token_ids_size() == 0 || rows.token_ids_size() != rows.positions_size()) {
      return absl::InvalidArgumentError("a call needs one token id and one position for each row");
    }
    for (int row = 0; row < rows.token_ids_size(); ++row) {
      const int32_t token = rows.token_ids(row);
      if (token < 0 || static_cast<uint32_t>(token) >= vocabulary) {
        return absl::InvalidArgumentError(absl::StrCat("token id ", token, " is outside the vocabulary"));
      }
      const bool last = row + 1 == rows.token_ids_size();
      batch.Add(token, rows.positions(row), rows.slot(),
                rows.outputs() == v1::OUTPUT_ROWS_ALL || (rows.outputs() == v1::OUTPUT_ROWS_LAST && last));
    }
  }
  if (batch.rows() == 0 || batch.rows() > config.ubatch) {
    return absl::InvalidArgumentError(absl::StrCat("a call has 1 to ubatch = ", config.ubatch, " rows, not ", batch.rows()));
  }
  return batch;
}

}  // namespace

WholeModel::WholeModel(ModelFiles files, ModelPtr model, BoundaryAdapter adapter, EngineConfig config)
    : files_(std::move(files)),
      model_(std::move(model)),
      adapter_(std::move(adapter)),
      config_(std::move(config)),
      vocabulary_(VocabularySize(model_.get())) {}

absl::StatusOr<std::unique_ptr<WholeModel>> WholeModel::Load(const EngineConfig& config) {
  absl::StatusOr<ModelFiles> files = ModelFiles::Open(config.model);
  if (!files.ok()) return files.status();
  files->NameInSigbus();  // nothing is mapped yet, but from now on a file may shrink
  absl::StatusOr<ModelPtr> model = LoadModel(config);
  if (!model.ok()) return model.status();
  files->NameInSigbus();
  absl::StatusOr<BoundaryAdapter> adapter = AdapterOf(model->get());
  if (!adapter.ok()) return adapter.status();
  std::unique_ptr<WholeModel> whole(new WholeModel(*std::move(files), *std::move(model), *std::move(adapter), config));
  absl::StatusOr<Runtime> runtime = NewRuntime(whole->model_.get(), config);
  if (!runtime.ok()) return runtime.status();
  whole->generating_ = *std::move(runtime);
  return whole;
}

absl::Status WholeModel::EnsureReplayRuntime() {
  if (replaying_.context) return absl::OkStatus();
  absl::StatusOr<Runtime> runtime = NewRuntime(model_.get(), config_, &WholeModel::Observe, &observed_);
  if (!runtime.ok()) return runtime.status();
  replaying_ = *std::move(runtime);
  return absl::OkStatus();
}

std::string WholeModel::ResidualName(uint32_t cut) const { return absl::StrCat(adapter_.residual, "-", cut - 1); }

bool WholeModel::Observe(ggml_tensor* tensor, bool ask, void* data) {
  auto& observed = *static_cast<Observed*>(data);
  const auto wanted = observed.wanted.find(ggml_get_name(tensor));
  if (wanted == observed.wanted.end()) return !ask;
  if (ask) return true;
  std::vector<float>& values = observed.values[*wanted];
  if (tensor->type == GGML_TYPE_F32 && ggml_is_contiguous(tensor)) {
    values.resize(static_cast<size_t>(ggml_nelements(tensor)));
    ggml_backend_tensor_get(tensor, values.data(), 0, values.size() * sizeof(float));
  }
  return true;
}

absl::Status WholeModel::Replay(absl::Span<const v1::DecodeCall* const> calls, const std::set<uint32_t>& cuts,
                                const std::function<absl::Status(size_t, const CallOutput&)>& handle) {
  for (const uint32_t cut : cuts) {
    if (cut == 0 || cut >= layer_count()) {
      return absl::InvalidArgumentError(absl::StrCat("cut ", cut, " is not inside a model of ", layer_count(), " layers"));
    }
  }
  if (absl::Status status = EnsureReplayRuntime(); !status.ok()) return status;
  llama_context* context = replaying_.context.get();
  Forget(context);
  observed_.wanted.clear();
  for (const uint32_t cut : cuts) observed_.wanted.insert(ResidualName(cut));

  for (size_t index = 0; index < calls.size(); ++index) {
    absl::StatusOr<Batch> batch = ToBatch(*calls[index], config_, vocabulary_);
    if (!batch.ok()) return batch.status();
    observed_.values.clear();
    if (absl::Status status = DecodeAll(files_, context, *batch); !status.ok()) return status;

    CallOutput output;
    for (const uint32_t cut : cuts) {
      std::vector<float>& values = observed_.values[ResidualName(cut)];
      // Also refuses a call that llama.cpp cut into several ubatches, whose rows are not in batch order.
      if (values.size() != batch->rows() * adapter_.row_values()) {
        return absl::InternalError(absl::StrCat("the residual at cut ", cut, " was not seen in full"));
      }
      output.residuals[cut] = std::move(values);
    }
    size_t row = 0;
    for (const v1::SequenceRows& rows : calls[index]->sequences()) {
      std::vector<float>& logits = output.logits.emplace_back();
      for (int i = 0; i < rows.token_ids_size(); ++i, ++row) {
        if (!batch->is_output(row)) continue;
        absl::StatusOr<std::vector<float>> values = LogitsOf(context, static_cast<int32_t>(row));
        if (!values.ok()) return values.status();
        logits.insert(logits.end(), values->begin(), values->end());
      }
    }
    if (absl::Status status = handle(index, output); !status.ok()) return status;
  }
  Forget(context);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<float>> WholeModel::LogitsOf(llama_context* context, int32_t row) const {
  const float* values = llama_get_logits_ith(context, row);
  if (values == nullptr) return absl::InternalError(absl::StrCat("no logits for row ", row));
  return std::vector<float>(values, values + vocabulary_);
}

absl::Status WholeModel::Generate(absl::Span<const int32_t> prompt, const std::function<bool(int32_t)>& handle) {
  llama_context* context = generating_.context.get();
  Forget(context);
  int32_t position = 0;
  for (size_t begin = 0; begin < prompt.size(); begin += config_.ubatch) {
    Batch batch;
    for (const int32_t token : prompt.subspan(begin, config_.ubatch)) {
      batch.Add(token, position, 0, static_cast<size_t>(position) + 1 == prompt.size());
      ++position;
    }
    if (absl::Status status = DecodeAll(files_, context, batch); !status.ok()) return status;
  }
  for (;;) {
    const float* logits = llama_get_logits_ith(context, -1);
    if (logits == nullptr) return absl::InternalError("no logits for the last row");
    const auto token = static_cast<int32_t>(std::max_element(logits, logits + vocabulary_) - logits);
    if (!handle(token)) return absl::OkStatus();
    Batch batch;
    batch.Add(token, position++, 0, true);
    if (absl::Status status = DecodeAll(files_, context, batch); !status.ok()) return status;
  }
}

}  // namespace dgr
