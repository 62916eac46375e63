// The boundary on the wire: from an engine's residual to frames, and from frames, validated in full, back to a chunk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "dgr/v1/stage.pb.h"

namespace dgr {

// What a stage's boundary looks like on the wire.
struct BoundaryFormat {
  std::string adapter;
  bool token_ids = false;  // whether frames carry them
  v1::DType dtype = v1::DTYPE_F32;
  uint32_t streams = 1;
  uint32_t width = 0;
  uint32_t vocabulary = 0;
  uint32_t ubatch = 0;          // rows of a chunk at most
  uint32_t fragment_bytes = 0;  // payload of a frame at most, unless a single row is larger

  size_t row_values() const { return size_t{streams} * width; }
  size_t value_bytes() const { return dtype == v1::DTYPE_BF16 ? 2 : 4; }
  uint32_t fragment_rows() const;
};

inline constexpr uint32_t kBoundarySchema = 1;

// One chunk: the input of one decode call of one session.
struct Chunk {
  uint64_t step = 0;
  v1::Phase phase = v1::PHASE_UNSPECIFIED;
  v1::OutputRows outputs = v1::OUTPUT_ROWS_UNSPECIFIED;
  std::vector<int32_t> positions;
  std::vector<int32_t> token_ids;
  std::vector<float> residual;  // rows x streams x width
};

// Frames of a chunk in row order. `residual` is what the engine gave for the chunk's rows.
std::vector<v1::BoundaryFrame> EncodeChunk(const BoundaryFormat& format, const v1::SessionKey& session, const Chunk& chunk,
                                           absl::Span<const float> residual);

// Collects the fragments of one session's chunks. Memory is bounded by one chunk.
class ChunkAssembly {
 public:
  // Takes a frame; true when the chunk is complete, which TakeChunk then hands out.
  // INVALID_ARGUMENT names the first thing that is wrong with the frame; the assembly is then unchanged.
  absl::StatusOr<bool> Add(const BoundaryFormat& format, const v1::BoundaryFrame& frame, uint32_t max_positions);
  Chunk TakeChunk();

 private:
  absl::Status Check(const BoundaryFormat& format, const v1::BoundaryFrame& frame, uint32_t max_positions) const;

  uint64_t next_step_ = 0;
  int64_t next_position_ = 0;
  uint32_t chunk_rows_ = 0;
  Chunk chunk_;
};

uint32_t Checksum(const std::string& payload);

// Round to nearest, ties to even; the value is finite.
uint16_t ToBf16(float value);
float FromBf16(uint16_t bits);

}  // namespace dgr
