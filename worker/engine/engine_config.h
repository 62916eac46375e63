// How an engine is to be set up; the same words as a recipe's [execution].
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace dgr {

// Half-open, absolute layer indices.
struct LayerRange {
  uint32_t begin = 0;
  uint32_t end = 0;

  bool operator==(const LayerRange&) const = default;
};

enum class CacheType { kF32, kF16, kQ8_0 };

struct EngineConfig {
  std::string model;                 // first file of the GGUF set
  std::optional<LayerRange> layers;  // none: the whole model
  uint32_t context = 2048;           // positions per session
  uint32_t sessions = 4;
  uint32_t ubatch = 128;  // rows of one decode call
  uint32_t threads = 1;
  bool flash_attention = true;
  CacheType kv_type_k = CacheType::kF16;
  CacheType kv_type_v = CacheType::kF16;
  std::string compute_gate;   // empty: none; see compute_gate.h
  uint32_t gate_seconds = 0;  // longest wait for a turn at it; 0: without end
};

}  // namespace dgr
