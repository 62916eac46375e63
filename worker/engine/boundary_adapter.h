// What crosses between two stages, by architecture. docs/boundary.md describes each adapter.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine_config.h"
#include "llama.h"

namespace dgr {

struct BoundaryAdapter {
  std::string id;          // with its version; a stage accepts frames of exactly this one
  bool token_ids = false;  // whether every stage needs the token ids, and not the head alone
  uint32_t streams = 1;    // residual streams of a row
  uint32_t width = 0;      // values of a stream
  std::string residual;    // upstream's name for the residual that layer N gives, up to "-N"

  uint32_t row_values() const { return streams * width; }
};

// FAILED_PRECONDITION: the file lacks what its architecture's adapter goes by.
absl::StatusOr<BoundaryAdapter> AdapterOf(const llama_model* model);

// That llama.cpp takes and gives rows of exactly the adapter's size at the ends that `range` has inside the model. With any
// other size it would read and write past a row without a word. FAILED_PRECONDITION names both sizes.
absl::Status CheckRows(const llama_model* model, const BoundaryAdapter& adapter, const LayerRange& range);

}  // namespace dgr
