#include "transport/boundary_codec.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace dgr {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are little-endian, as memory is on all lanes so far");

std::string EncodeValues(v1::DType dtype, absl::Span<const float> values) {
  if (dtype == v1::DTYPE_F32) {
    return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  std::string payload(values.size() * sizeof(uint16_t), '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t bits = ToBf16(values[i]);
    std::memcpy(payload.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return payload;
}

void AppendValues(v1::DType dtype, const std::string& payload, std::vector<float>& values) {
  const size_t before = values.size();
  if (dtype == v1::DTYPE_F32) {
    values.resize(before + payload.size() / sizeof(float));
    std::memcpy(values.data() + before, payload.data(), payload.size());
    return;
  }
  values.resize(before + payload.size() / sizeof(uint16_t));
  for (size_t i = before; i < values.size(); ++i) {
    uint16_t bits = 0;
    std::memcpy(&bits, payload.data() + (i - before) * sizeof bits, sizeof bits);
    values[i] = FromBf16(bits);
  }
}

absl::Status Wrong(const char* field, const auto&... rest) {
  return absl::InvalidArgumentError(absl::StrCat("frame refused: ", field, " ", rest...));
}

bool PayloadIsFinite(v1::DType dtype, const std::string& payload) {
  // An exponent of all ones is an infinity or not a number, in both formats.
  if (dtype == v1::DTYPE_F32) {
    for (size_t i = 0; i < payload.size(); i += 4) {
      uint32_t bits = 0;
      std::memcpy(&bits, payload.data() + i, sizeof bits);
      if ((bits & 0x7f800000u) == 0x7f800000u) return false;
    }
    return true;
  }
  for (size_t i = 0; i < payload.size(); i += 2) {
    uint16_t bits = 0;
    std::memcpy(&bits, payload.data() + i, sizeof bits);
    if ((bits & 0x7f80u) == 0x7f80u) return false;
  }
  return true;
}

}  // namespace

uint32_t BoundaryFormat::fragment_rows() const {
  const size_t rows = fragment_bytes / (row_values() * value_bytes());
  return static_cast<uint32_t>(std::clamp<size_t>(rows, 1, ubatch));
}

uint32_t Checksum(const std::string& payload) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const unsigned char*>(payload.data()), payload.size()));
}

uint16_t ToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float FromBf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

std::vector<v1::BoundaryFrame> EncodeChunk(const BoundaryFormat& format, const v1::SessionKey& session, const Chunk& chunk,
                                           absl::Span<const float> residual) {
  const auto rows = static_cast<uint32_t>(chunk.positions.size());
  std::vector<v1::BoundaryFrame> frames;
  for (uint32_t begin = 0; begin < rows; begin += format.fragment_rows()) {
    const uint32_t count = std::min(format.fragment_rows(), rows - begin);
    v1::BoundaryFrame& frame = frames.emplace_back();
    frame.set_schema_version(kBoundarySchema);
    *frame.mutable_session() = session;
    frame.set_step(chunk.step);
    frame.set_phase(chunk.phase);
    frame.set_outputs(chunk.outputs);
    frame.set_chunk_rows(rows);
    frame.set_row_begin(begin);
    const auto first = chunk.positions.begin() + begin;
    frame.mutable_positions()->Add(first, first + count);
    if (format.token_ids) {
      const auto first_id = chunk.token_ids.begin() + begin;
      frame.mutable_token_ids()->Add(first_id, first_id + count);
    }
    frame.set_adapter(format.adapter);
    frame.set_dtype(format.dtype);
    frame.set_streams(format.streams);
    frame.set_width(format.width);
    frame.set_payload(EncodeValues(format.dtype, residual.subspan(begin * format.row_values(), count * format.row_values())));
    frame.set_checksum(Checksum(frame.payload()));
  }
  return frames;
}

absl::StatusOr<bool> ChunkAssembly::Add(const BoundaryFormat& format, const v1::BoundaryFrame& frame, uint32_t max_positions) {
  if (absl::Status status = Check(format, frame, max_positions); !status.ok()) return status;
  if (frame.row_begin() == 0) {
    chunk_ = Chunk{frame.step(), frame.phase(), frame.outputs(), {}, {}, {}};
    chunk_rows_ = frame.chunk_rows();
    chunk_.residual.reserve(chunk_rows_ * format.row_values());
  }
  chunk_.positions.insert(chunk_.positions.end(), frame.positions().begin(), frame.positions().end());
  chunk_.token_ids.insert(chunk_.token_ids.end(), frame.token_ids().begin(), frame.token_ids().end());
  AppendValues(format.dtype, frame.payload(), chunk_.residual);
  next_position_ += frame.positions_size();
  return chunk_.positions.size() == chunk_rows_;
}

Chunk ChunkAssembly::TakeChunk() {
  ++next_step_;
  chunk_rows_ = 0;
  return std::move(chunk_);
}

absl::Status ChunkAssembly::Check(const BoundaryFormat& format, const v1::BoundaryFrame& frame, uint32_t max_positions) const {
  const auto rows = static_cast<uint32_t>(frame.positions_size());
  if (frame.schema_version() != kBoundarySchema) {
    return Wrong("schema_version", "is ", frame.schema_version(), ", this stage speaks ", kBoundarySchema);
  }
  if (frame.adapter() != format.adapter) return Wrong("adapter", "is '", frame.adapter(), "', not ", format.adapter);
  if (frame.dtype() != format.dtype) {
    return Wrong("dtype", "is ", v1::DType_Name(frame.dtype()), ", not ", v1::DType_Name(format.dtype));
  }
  if (frame.streams() != format.streams || frame.width() != format.width) {
    return Wrong("shape", "is ", frame.streams(), " x ", frame.width(), " a row, not ", format.streams, " x ", format.width);
  }
  if (frame.step() != next_step_) return Wrong("step", "is ", frame.step(), ", expected ", next_step_);
  if (frame.chunk_rows() == 0 || frame.chunk_rows() > format.ubatch) {
    return Wrong("chunk_rows", "is ", frame.chunk_rows(), "; a chunk has 1 to ", format.ubatch, " rows");
  }
  if (frame.phase() != v1::PHASE_PREFILL && !(frame.phase() == v1::PHASE_DECODE && frame.chunk_rows() == 1)) {
    return Wrong("phase", "must be PREFILL, or DECODE with a single row");
  }
  if (frame.outputs() < v1::OUTPUT_ROWS_NONE || frame.outputs() > v1::OUTPUT_ROWS_ALL) {
    return Wrong("outputs", "is not set");
  }
  const auto received = static_cast<uint32_t>(chunk_rows_ == 0 ? 0 : chunk_.positions.size());
  if (frame.row_begin() != received) return Wrong("row_begin", "is ", frame.row_begin(), ", expected ", received);
  if (received > 0 && (frame.chunk_rows() != chunk_rows_ || frame.phase() != chunk_.phase || frame.outputs() != chunk_.outputs)) {
    return Wrong("header", "differs from the chunk's first fragment");
  }
  if (rows == 0 || rows > frame.chunk_rows() - received) {
    return Wrong("positions", "has ", rows, " rows where 1 to ", frame.chunk_rows() - received, " are left");
  }
  for (uint32_t row = 0; row < rows; ++row) {
    if (frame.positions(static_cast<int>(row)) != next_position_ + row) {
      return Wrong("positions", "holds ", frame.positions(static_cast<int>(row)), " where ", next_position_ + row,
                   " was expected");
    }
  }
  if (next_position_ + rows > max_positions) {
    return Wrong("positions", "reach past the ", max_positions, " this session was admitted for");
  }
  if (static_cast<uint32_t>(frame.token_ids_size()) != (format.token_ids ? rows : 0)) {
    return Wrong("token_ids", "has ", frame.token_ids_size(), " entries, expected ", format.token_ids ? rows : 0);
  }
  for (const int32_t token : frame.token_ids()) {
    if (token < 0 || static_cast<uint32_t>(token) >= format.vocabulary) {
      return Wrong("token_ids", "holds ", token, ", outside the vocabulary of ", format.vocabulary);
    }
  }
  const size_t expected = rows * format.row_values() * format.value_bytes();
  if (frame.payload().size() != expected) {
    return Wrong("payload", "has ", frame.payload().size(), " bytes, expected ", expected);
  }
  if (rows > 1 && expected > format.fragment_bytes) {
    return Wrong("payload", "has ", expected, " bytes, more than fragment_bytes = ", format.fragment_bytes);
  }
  if (frame.checksum() != Checksum(frame.payload())) return Wrong("checksum", "does not match the payload");
  if (!PayloadIsFinite(format.dtype, frame.payload())) return Wrong("payload", "holds a value that is not finite");
  return absl::OkStatus();
}

}  // namespace dgr
