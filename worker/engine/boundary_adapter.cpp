#include "engine/boundary_adapter.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/llama_runtime.h"

namespace dgr {
namespace {

struct AdapterEntry {
  const char* architecture;
  const char* id;
  const char* streams_key;  // of the file's metadata; null: one stream
  bool token_ids;
  const char* residual;
};

// Architectures that are not here have one stream, and need no token ids after the head unless their positions have sections
// (M-RoPE): llama.cpp takes one position for a token, and four for a row without one.
constexpr AdapterEntry kPlain = {"", "residual/1", nullptr, false, "l_out"};
constexpr AdapterEntry kWithTokens = {"", "residual-tokens/1", nullptr, true, "l_out"};
constexpr AdapterEntry kAdapters[] = {
    {"cogvlm", "residual-tokens/1", nullptr, true, "l_out"},  // other weights for text than for images
    {"deepseek4", "deepseek4/1", "deepseek4.hyper_connection.count", true, "l_last"},
    {"glm5-next", "streams-tokens/1", "glm5-next.hyper_connection.count", true, "l_out"},
    {"hy_v4", "streams-tokens/1", "hy_v4.hyper_connection.count", true, "l_out"},
    {"qwen4exp", "streams-tokens/1", "qwen4exp.hyper_connection.count", true, "l_last"},
};

const AdapterEntry& EntryOf(const llama_model* model) {
  const std::string architecture = Architecture(model);
  const auto* const found = std::find_if(std::begin(kAdapters), std::end(kAdapters),
                                         [&](const AdapterEntry& entry) { return entry.architecture == architecture; });
  if (found != std::end(kAdapters)) return *found;
  const llama_rope_type rope = llama_model_rope_type(model);
  return rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_IMROPE ? kWithTokens : kPlain;
}

absl::StatusOr<uint32_t> Streams(const llama_model* model, const char* key) {
  if (key == nullptr) return 1;
  char text[32] = {};
  uint32_t streams = 0;
  if (llama_model_meta_val_str(model, key, text, sizeof text) < 0 || !absl::SimpleAtoi(text, &streams) || streams == 0) {
    return absl::FailedPreconditionError(absl::StrCat("the model's ", key, " is missing, or no count of streams"));
  }
  return streams;
}

}  // namespace

absl::StatusOr<BoundaryAdapter> AdapterOf(const llama_model* model) {
  const AdapterEntry& entry = EntryOf(model);
  const absl::StatusOr<uint32_t> streams = Streams(model, entry.streams_key);
  if (!streams.ok()) return streams.status();
  const auto width = static_cast<uint32_t>(llama_model_n_embd(model));
  return BoundaryAdapter{entry.id, entry.token_ids, *streams, width, entry.residual};
}

absl::Status CheckRows(const llama_model* model, const BoundaryAdapter& adapter, const LayerRange& range) {
  const auto row = static_cast<int32_t>(adapter.row_values());
  if (range.begin > 0 && llama_model_n_embd_inp(model) != row) {
    return absl::FailedPreconditionError(absl::StrCat("the boundary ", adapter.id, " has ", row,
                                                      " values a row; the engine takes ", llama_model_n_embd_inp(model),
                                                      " at layer ", range.begin));
  }
  if (range.end < static_cast<uint32_t>(llama_model_n_layer(model)) && llama_model_n_embd_out(model) != row) {
    return absl::FailedPreconditionError(absl::StrCat("the boundary ", adapter.id, " has ", row,
                                                      " values a row; the engine gives ", llama_model_n_embd_out(model),
                                                      " at layer ", range.end));
  }
  return absl::OkStatus();
}

}  // namespace dgr
