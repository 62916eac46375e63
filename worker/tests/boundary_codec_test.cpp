#include "transport/boundary_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>

namespace dgr {
namespace {

constexpr uint32_t kMaxPositions = 64;

BoundaryFormat Format(v1::DType dtype = v1::DTYPE_F32) {
  BoundaryFormat format;
  format.adapter = "residual/1";
  format.dtype = dtype;
  format.streams = 2;
  format.width = 4;
  format.vocabulary = 100;
  format.ubatch = 16;
  format.fragment_bytes = 3 * 2 * 4 * 4;  // three rows of f32
  return format;
}

v1::SessionKey Key() {
  v1::SessionKey key;
  key.set_route_session_id("s");
  key.set_route_epoch(1);
  return key;
}

Chunk MakeChunk(uint64_t step, int32_t first, size_t rows) {
  Chunk chunk;
  chunk.step = step;
  chunk.phase = v1::PHASE_PREFILL;
  chunk.outputs = v1::OUTPUT_ROWS_LAST;
  chunk.positions.resize(rows);
  std::iota(chunk.positions.begin(), chunk.positions.end(), first);
  chunk.token_ids.assign(rows, 7);
  return chunk;
}

std::vector<float> Residual(size_t rows) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 5000);  // residuals of real models go past 22,000
  std::vector<float> values(rows * 8);
  for (float& value : values) value = normal(random);
  return values;
}

// The frames of one chunk through an assembly; the chunk they give.
absl::StatusOr<Chunk> RoundTrip(const BoundaryFormat& format, const std::vector<v1::BoundaryFrame>& frames) {
  ChunkAssembly assembly;
  for (const v1::BoundaryFrame& frame : frames) {
    const absl::StatusOr<bool> complete = assembly.Add(format, frame, kMaxPositions);
    if (!complete.ok()) return complete.status();
    if (*complete) return assembly.TakeChunk();
  }
  return absl::NotFoundError("the chunk is not complete");
}

TEST(BoundaryCodec, F32ArrivesBitForBit) {
  const std::vector<float> residual = Residual(10);
  const auto frames = EncodeChunk(Format(), Key(), MakeChunk(0, 0, 10), residual);
  EXPECT_EQ(frames.size(), 4u);  // 3 + 3 + 3 + 1 rows
  const absl::StatusOr<Chunk> chunk = RoundTrip(Format(), frames);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_EQ(chunk->residual, residual);
  EXPECT_EQ(chunk->positions, MakeChunk(0, 0, 10).positions);
  EXPECT_TRUE(chunk->token_ids.empty());
}

TEST(BoundaryCodec, TokenIdsTravelWhereTheAdapterNeedsThem) {
  BoundaryFormat format = Format();
  format.token_ids = true;
  const absl::StatusOr<Chunk> chunk = RoundTrip(format, EncodeChunk(format, Key(), MakeChunk(0, 0, 5), Residual(5)));
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_EQ(chunk->token_ids, std::vector<int32_t>(5, 7));
}

TEST(BoundaryCodec, RefusesAFrameThatLacksTheTokenIdsItsAdapterNeeds) {
  BoundaryFormat format = Format();
  format.token_ids = true;
  v1::BoundaryFrame frame = EncodeChunk(format, Key(), MakeChunk(0, 0, 2), Residual(2)).front();
  frame.clear_token_ids();
  ChunkAssembly assembly;
  const absl::Status status = assembly.Add(format, frame, kMaxPositions).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("token_ids has 0 entries, expected 2"), std::string::npos) << status;
}

// Rows of the real DeepSeek V4 have 64 KiB.
TEST(BoundaryCodec, CutsRowsOfSeveralStreamsUnderTheFragmentBound) {
  BoundaryFormat format = Format();
  format.token_ids = true;
  format.streams = 4;
  format.width = 4096;
  format.ubatch = 40;
  format.fragment_bytes = 1u << 20;
  EXPECT_EQ(format.fragment_rows(), 16u);
  std::vector<float> residual(40 * format.row_values());
  std::iota(residual.begin(), residual.end(), 0.5f);
  const std::vector<v1::BoundaryFrame> frames = EncodeChunk(format, Key(), MakeChunk(0, 0, 40), residual);
  ASSERT_EQ(frames.size(), 3u);
  for (const v1::BoundaryFrame& frame : frames) {
    EXPECT_LE(frame.payload().size(), format.fragment_bytes);
    EXPECT_EQ(frame.token_ids_size(), frame.positions_size());
  }
  const absl::StatusOr<Chunk> chunk = RoundTrip(format, frames);
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  EXPECT_EQ(chunk->residual, residual);
  EXPECT_EQ(chunk->token_ids, std::vector<int32_t>(40, 7));
}

TEST(BoundaryCodec, Bf16RoundsToNearestEven) {
  EXPECT_EQ(ToBf16(1.0f), 0x3f80);
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie goes to the even neighbour below
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // a tie goes to the even neighbour above
  EXPECT_EQ(ToBf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(ToBf16(-2.5f), 0xc020);
  const absl::StatusOr<Chunk> chunk =
      RoundTrip(Format(v1::DTYPE_BF16), EncodeChunk(Format(v1::DTYPE_BF16), Key(), MakeChunk(0, 0, 4), Residual(4)));
  ASSERT_TRUE(chunk.ok()) << chunk.status();
  const std::vector<float> sent = Residual(4);
  for (size_t i = 0; i < sent.size(); ++i) EXPECT_NEAR(chunk->residual[i], sent[i], std::abs(sent[i]) / 256);
}

TEST(BoundaryCodec, ASecondChunkContinuesTheFirst) {
  ChunkAssembly assembly;
  for (int step = 0; step < 3; ++step) {
    const auto frames = EncodeChunk(Format(), Key(), MakeChunk(static_cast<uint64_t>(step), step * 2, 2), Residual(2));
    const absl::StatusOr<bool> complete = assembly.Add(Format(), frames[0], kMaxPositions);
    ASSERT_TRUE(complete.ok()) << complete.status();
    EXPECT_TRUE(*complete);
    EXPECT_EQ(assembly.TakeChunk().positions.front(), step * 2);
  }
}

TEST(BoundaryCodec, ARowLargerThanAFragmentTravelsAlone) {
  BoundaryFormat format = Format();
  format.fragment_bytes = 8;
  const auto frames = EncodeChunk(format, Key(), MakeChunk(0, 0, 3), Residual(3));
  EXPECT_EQ(frames.size(), 3u);
  EXPECT_TRUE(RoundTrip(format, frames).ok());
}

// Each case spoils one thing in a good frame; the refusal must name it and leave the assembly as it was.
struct Spoiled {
  const char* name;
  const char* named;
  std::function<void(v1::BoundaryFrame&)> spoil;
};

class RefusedFrame : public testing::TestWithParam<Spoiled> {};

void Repack(v1::BoundaryFrame& frame, size_t at, float value) {
  std::memcpy(frame.mutable_payload()->data() + at, &value, sizeof value);
  frame.set_checksum(Checksum(frame.payload()));
}

TEST_P(RefusedFrame, NamesWhatIsWrong) {
  const v1::BoundaryFrame good = EncodeChunk(Format(), Key(), MakeChunk(0, 0, 3), Residual(3)).front();
  v1::BoundaryFrame bad = good;
  GetParam().spoil(bad);
  ChunkAssembly assembly;
  const absl::StatusOr<bool> refused = assembly.Add(Format(), bad, kMaxPositions);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find(GetParam().named), absl::string_view::npos) << refused.status();
  const absl::StatusOr<bool> taken = assembly.Add(Format(), good, kMaxPositions);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_TRUE(*taken);
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedFrame,
    testing::Values(Spoiled{"Schema", "schema_version", [](auto& f) { f.set_schema_version(2); }},
                    Spoiled{"Adapter", "adapter", [](auto& f) { f.set_adapter("deepseek4/1"); }},
                    Spoiled{"DType", "dtype", [](auto& f) { f.set_dtype(v1::DTYPE_BF16); }},
                    Spoiled{"Width", "shape", [](auto& f) { f.set_width(8); }},
                    Spoiled{"Streams", "shape", [](auto& f) { f.set_streams(1); }},
                    Spoiled{"Step", "step", [](auto& f) { f.set_step(1); }},
                    Spoiled{"NoRows", "chunk_rows", [](auto& f) { f.set_chunk_rows(0); }},
                    Spoiled{"TooManyRows", "chunk_rows", [](auto& f) { f.set_chunk_rows(17); }},
                    Spoiled{"HugeRows", "chunk_rows", [](auto& f) { f.set_chunk_rows(0xffffffffu); }},
                    Spoiled{"Phase", "phase", [](auto& f) { f.set_phase(v1::PHASE_UNSPECIFIED); }},
                    Spoiled{"DecodeOfManyRows", "phase", [](auto& f) { f.set_phase(v1::PHASE_DECODE); }},
                    Spoiled{"Outputs", "outputs", [](auto& f) { f.set_outputs(v1::OUTPUT_ROWS_UNSPECIFIED); }},
                    Spoiled{"RowBegin", "row_begin", [](auto& f) { f.set_row_begin(1); }},
                    Spoiled{"NoPositions", "positions", [](auto& f) { f.clear_positions(); }},
                    Spoiled{"MorePositionsThanRows", "positions", [](auto& f) { f.add_positions(3); }},
                    Spoiled{"GappedPositions", "positions", [](auto& f) { f.set_positions(1, 2); }},
                    Spoiled{"RepeatedPositions", "positions", [](auto& f) { f.set_positions(1, 0); }},
                    Spoiled{"NegativePositions", "positions", [](auto& f) { f.set_positions(0, -1); }},
                    Spoiled{"StartsElsewhere", "positions",
                            [](auto& f) {
                              for (int i = 0; i < 3; ++i) f.set_positions(i, i + 5);
                            }},
                    Spoiled{"TokenIds", "token_ids", [](auto& f) { f.add_token_ids(1); }},
                    Spoiled{"ShortPayload", "payload", [](auto& f) { f.mutable_payload()->pop_back(); }},
                    Spoiled{"NoPayload", "payload", [](auto& f) { f.clear_payload(); }},
                    Spoiled{"LongPayload", "payload", [](auto& f) { f.mutable_payload()->append(4096, 'x'); }},
                    Spoiled{"Checksum", "checksum", [](auto& f) { f.set_checksum(f.checksum() ^ 1u); }},
                    Spoiled{"FlippedBit", "checksum", [](auto& f) { (*f.mutable_payload())[9] ^= 1; }},
                    Spoiled{"NotANumber", "finite", [](auto& f) { Repack(f, 8, std::numeric_limits<float>::quiet_NaN()); }},
                    Spoiled{"Infinity", "finite", [](auto& f) { Repack(f, 0, -std::numeric_limits<float>::infinity()); }}),
    [](const auto& spoiled) { return spoiled.param.name; });

TEST(BoundaryCodec, RefusesPositionsPastTheAdmittedOnes) {
  ChunkAssembly assembly;
  const auto frames = EncodeChunk(Format(), Key(), MakeChunk(0, 0, 3), Residual(3));
  const absl::StatusOr<bool> refused = assembly.Add(Format(), frames[0], 2);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("admitted"), absl::string_view::npos) << refused.status();
}

TEST(BoundaryCodec, RefusesFragmentsOutOfOrderAndChangedHeaders) {
  const auto frames = EncodeChunk(Format(), Key(), MakeChunk(0, 0, 9), Residual(9));
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_FALSE(RoundTrip(Format(), {frames[0], frames[2]}).ok());
  EXPECT_FALSE(RoundTrip(Format(), {frames[0], frames[0]}).ok());
  EXPECT_FALSE(RoundTrip(Format(), {frames[1]}).ok());
  v1::BoundaryFrame changed = frames[1];
  changed.set_outputs(v1::OUTPUT_ROWS_NONE);
  EXPECT_FALSE(RoundTrip(Format(), {frames[0], changed}).ok());
}

TEST(BoundaryCodec, RefusesTokenIdsOutsideTheVocabulary) {
  BoundaryFormat format = Format();
  format.token_ids = true;
  for (const int32_t token : {-1, 100}) {
    Chunk chunk = MakeChunk(0, 0, 2);
    chunk.token_ids[1] = token;
    EXPECT_FALSE(RoundTrip(format, EncodeChunk(format, Key(), chunk, Residual(2))).ok());
  }
}

}  // namespace
}  // namespace dgr
