// What the rest of the worker knows of the engine. No llama.cpp or ggml type passes this line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/engine_config.h"

namespace dgr {

// What the engine loaded.
struct EngineShape {
  std::string architecture;
  uint32_t layer_count = 0;         // of the whole model
  LayerRange range;                 // owned
  std::string adapter;              // boundary adapter, "residual/1" for plain models
  bool boundary_token_ids = false;  // whether stages after the head need the token ids
  uint32_t streams = 1;             // residual streams per row
  uint32_t width = 0;               // values per stream
  uint32_t vocabulary = 0;

  bool head() const { return range.begin == 0; }
  bool tail() const { return range.end == layer_count; }
  bool takes_token_ids() const { return head() || boundary_token_ids; }
  uint32_t row_values() const { return streams * width; }
};

// The rows of a decode call that the tail computes logits for.
enum class OutputRows { kNone, kLast, kAll };

// One session's rows of a decode call.
struct SequenceInput {
  uint32_t slot = 0;
  absl::Span<const int32_t> positions;  // one per row
  absl::Span<const int32_t> token_ids;  // one per row on the head and where the boundary has them, else empty
  absl::Span<const float> residual;     // rows x streams x width; empty on the head
  OutputRows outputs = OutputRows::kNone;
};

struct DecodeOutput {
  std::vector<float> residual;  // rows x streams x width in batch order; empty on the tail
  std::vector<float> logits;    // output rows x vocabulary in batch order; empty before the tail
};

class ShardEngine {
 public:
  virtual ~ShardEngine() = default;

  virtual const EngineShape& shape() const = 0;

  // Runs the owned layers over the rows. Only from the engine thread.
  //   INVALID_ARGUMENT    rows that do not fit the shape; token ids or residual that lack, or that nobody asked for; repeated or
  //                       gapped positions
  //   RESOURCE_EXHAUSTED  no room left in the slot
  //   DATA_LOSS           a model file was changed since it was loaded
  //   INTERNAL            the backend failed, or gave values that are not finite; the slot's state is not to be trusted
  virtual absl::StatusOr<DecodeOutput> Decode(const SequenceInput& input) = 0;

  // Drops all state of a slot. Only from the engine thread.
  virtual absl::Status FreeSlot(uint32_t slot) = 0;

  // The vocabulary; from any thread. A text of more bytes than `limit` tokens can hold is refused before any work.
  virtual absl::StatusOr<std::vector<int32_t>> Tokenize(const std::string& text, bool chat_template, uint32_t limit) const = 0;
  virtual std::string TokenPiece(int32_t token) const = 0;
  virtual bool EndsGeneration(int32_t token) const = 0;
};

// FAILED_PRECONDITION: the file cannot be read, the architecture cannot be split, the range does not fit.
absl::StatusOr<std::unique_ptr<ShardEngine>> LoadLlamaEngine(const EngineConfig& config);

}  // namespace dgr
