// What a stage refuses, in the engine and in llama.cpp under it, and the order of the rows it gives: on small models of DeepSeek
// V4 and Gemma 3, which DGR_TEST_DEEPSEEK4 and DGR_TEST_GEMMA3 name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "engine/llama_runtime.h"
#include "engine/shard_engine.h"
#include "gguf.h"
#include "llama-ext.h"

namespace dgr {
namespace {

constexpr uint32_t kLayers = 8;
constexpr char kDeepSeek4[] = "DGR_TEST_DEEPSEEK4";
constexpr char kGemma3[] = "DGR_TEST_GEMMA3";

EngineConfig Config(uint32_t begin, uint32_t end, const char* model_variable = kDeepSeek4) {
  EngineConfig config;
  const char* model = std::getenv(model_variable);
  config.model = model == nullptr ? "" : model;
  config.layers = LayerRange{begin, end};
  config.context = 64;
  config.sessions = 2;
  config.ubatch = 32;
  return config;
}

std::unique_ptr<ShardEngine> Stage(uint32_t begin, uint32_t end) {
  absl::StatusOr<std::unique_ptr<ShardEngine>> engine = LoadLlamaEngine(Config(begin, end));
  EXPECT_TRUE(engine.ok()) << engine.status();
  return engine.ok() ? *std::move(engine) : nullptr;
}

absl::Status Refusal(ShardEngine& engine, const std::vector<int32_t>& tokens, const std::vector<float>& residual) {
  const std::vector<int32_t> positions = {0, 1};
  SequenceInput input;
  input.positions = positions;
  input.token_ids = tokens;
  input.residual = residual;
  input.outputs = OutputRows::kLast;
  return engine.Decode(input).status();
}

TEST(DeepSeek4Stage, DescribesABoundaryOfSeveralStreamsWithTokenIds) {
  const auto middle = Stage(2, 5);
  ASSERT_TRUE(middle);
  EXPECT_EQ(middle->shape().adapter, "deepseek4/1");
  EXPECT_EQ(middle->shape().streams, 4u);
  EXPECT_TRUE(middle->shape().boundary_token_ids);
  EXPECT_EQ(middle->shape().layer_count, kLayers);  // without the prediction layer
}

TEST(DeepSeek4Stage, AfterTheHeadNeedsResidualAndTokenIds) {
  const auto tail = Stage(2, kLayers);
  ASSERT_TRUE(tail);
  const std::vector<float> residual(2 * tail->shape().row_values(), 0.5f);
  EXPECT_TRUE(Refusal(*tail, {1, 2}, residual).ok());
  ASSERT_TRUE(tail->FreeSlot(0).ok());
  for (const absl::Status& refusal : {Refusal(*tail, {}, residual), Refusal(*tail, {1}, residual), Refusal(*tail, {1, 2}, {}),
                                      Refusal(*tail, {1, 256}, residual), Refusal(*tail, {1, -1}, residual)}) {
    EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << refusal;
  }
}

TEST(DeepSeek4Stage, TheHeadTakesNoResidual) {
  const auto head = Stage(0, 2);
  ASSERT_TRUE(head);
  EXPECT_EQ(Refusal(*head, {1, 2}, std::vector<float>(2 * head->shape().row_values())).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Refusal(*head, {1, 2}, {}).ok());
}

// A batch as llama.cpp takes it; rows of two sequences by turns, as long as both have some.
struct MixedBatch {
  MixedBatch(int first, int second, bool output) {
    for (int row = 0; row < std::max(first, second); ++row) {
      if (row < first) Add(0, row, output);
      if (row < second) Add(1, row, output);
    }
  }

  void Add(llama_seq_id slot, int row, bool output) {
    tokens.push_back(3 + 7 * row + 101 * slot);
    positions.push_back(row);
    slots.push_back(slot);
    outputs.push_back(output ? 1 : 0);
  }

  llama_batch Get() {
    pointers.clear();
    for (llama_seq_id& slot : slots) pointers.push_back(&slot);
    counts.assign(slots.size(), 1);
    llama_batch batch{};
    batch.n_tokens = static_cast<int32_t>(tokens.size());
    batch.token = tokens.data();
    batch.pos = positions.data();
    batch.n_seq_id = counts.data();
    batch.seq_id = pointers.data();
    batch.logits = outputs.data();
    return batch;
  }

  std::vector<llama_token> tokens;
  std::vector<llama_pos> positions;
  std::vector<llama_seq_id> slots;
  std::vector<int8_t> outputs;
  std::vector<int32_t> counts;
  std::vector<llama_seq_id*> pointers;
};

class LlamaStage {
 public:
  explicit LlamaStage(const EngineConfig& config) {
    absl::StatusOr<ModelPtr> model = LoadModel(config);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) return;
    model_ = *std::move(model);
    absl::StatusOr<Runtime> runtime = NewRuntime(model_.get(), config);
    EXPECT_TRUE(runtime.ok()) << runtime.status();
    if (!runtime.ok()) return;
    runtime_ = *std::move(runtime);
    llama_set_embeddings_nextn(runtime_.context.get(), true, /*masked=*/false);
    row_ = static_cast<size_t>(llama_model_n_embd_out(model_.get()));
  }

  bool ready() const { return runtime_.context != nullptr; }
  size_t row_values() const { return row_; }
  int32_t Decode(const llama_batch& batch) { return llama_decode(runtime_.context.get(), batch); }

  size_t StateBytesAfter(const llama_batch& batch) {
    EXPECT_EQ(Decode(batch), 0);
    return llama_state_seq_get_size(runtime_.context.get(), 0);
  }

  // The residual of each row of a batch on fresh state, as llama.cpp orders them.
  std::vector<std::vector<float>> Rows(const llama_batch& batch) {
    llama_memory_clear(llama_get_memory(runtime_.context.get()), true);
    EXPECT_EQ(Decode(batch), 0);
    const float* values = llama_get_embeddings_nextn(runtime_.context.get());
    std::vector<std::vector<float>> rows;
    for (size_t row = 0; row < static_cast<size_t>(batch.n_tokens); ++row)
      rows.emplace_back(values + row * row_, values + (row + 1) * row_);
    return rows;
  }

 private:
  ModelPtr model_;
  Runtime runtime_;
  size_t row_ = 0;
};

// Without these refusals llama.cpp computes with what the call before left behind, and reports success.
TEST(DeepSeek4Stage, LlamaRefusesABatchThatLacksWhatAStageReads) {
  LlamaStage tail(Config(2, kLayers));
  ASSERT_TRUE(tail.ready());
  MixedBatch rows(2, 0, true);
  std::vector<float> residual(2 * tail.row_values(), 0.5f);
  llama_batch batch = rows.Get();
  batch.embd = residual.data();
  EXPECT_EQ(tail.Decode(batch), 0);
  rows.positions = {2, 3};
  batch.pos = rows.positions.data();
  batch.embd = nullptr;
  EXPECT_EQ(tail.Decode(batch), -1) << "tokens without a residual";
  batch.embd = residual.data();
  batch.token = nullptr;
  EXPECT_EQ(tail.Decode(batch), -1) << "a residual without tokens, which hash-routed layers need";
}

// The rows of the token embedding, as an image's would come: without token ids.
std::vector<float> EmbeddingsOf(const std::vector<llama_token>& tokens) {
  ggml_context* tensors = nullptr;
  const gguf_init_params params{/*no_alloc=*/false, /*ctx=*/&tensors};
  gguf_context* file = gguf_init_from_file(Config(0, 1).model.c_str(), params);
  std::vector<float> rows;
  const ggml_tensor* table = ggml_get_tensor(tensors, "token_embd.weight");
  EXPECT_EQ(table->type, GGML_TYPE_F32);
  const auto* values = static_cast<const float*>(table->data);
  for (const llama_token token : tokens)
    rows.insert(rows.end(), values + token * table->ne[0], values + (token + 1) * table->ne[0]);
  gguf_free(file);
  ggml_free(tensors);
  return rows;
}

// Why every stage needs the token ids: upstream takes whatever comes without them for an image, and routes no layer by hash. The
// result is as finite as the right one, and only a comparison finds it.
TEST(DeepSeek4Stage, WithoutTokenIdsHashRoutingIsOff) {
  LlamaStage head(Config(0, 2));
  ASSERT_TRUE(head.ready());
  MixedBatch rows(8, 0, true);
  llama_batch batch = rows.Get();
  const std::vector<std::vector<float>> right = head.Rows(batch);
  std::vector<float> embeddings = EmbeddingsOf(rows.tokens);
  batch.token = nullptr;
  batch.embd = embeddings.data();
  const std::vector<std::vector<float>> wrong = head.Rows(batch);
  ASSERT_EQ(wrong.size(), right.size());
  for (const std::vector<float>& row : wrong) {
    EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); }));
  }
  EXPECT_NE(wrong, right);
}

// Bytes of all state of one sequence after a few rows: every cache and every compressor's state, with llama.cpp's own headers.
size_t StateBytes(uint32_t begin, uint32_t end) {
  LlamaStage stage(Config(begin, end));
  if (!stage.ready()) return 0;
  MixedBatch rows(9, 0, true);
  llama_batch batch = rows.Get();
  std::vector<float> residual(9 * stage.row_values(), 0.5f);
  if (begin > 0) batch.embd = residual.data();
  return stage.StateBytesAfter(batch);
}

TEST(DeepSeek4Stage, KeepsStateForOwnedLayersOnly) {
  const size_t whole = StateBytes(0, kLayers);
  ASSERT_GT(whole, 0u);
  size_t of_single_layers = 0;
  for (uint32_t layer = 0; layer < kLayers; ++layer) of_single_layers += StateBytes(layer, layer + 1);
  // What each stage has once, whatever it owns: headers of caches, and the positions of cells.
  const size_t common = (of_single_layers - whole) / (kLayers - 1);
  EXPECT_EQ(of_single_layers, whole + (kLayers - 1) * common);
  for (uint32_t cut = 1; cut < kLayers; ++cut) {
    EXPECT_EQ(StateBytes(0, cut) + StateBytes(cut, kLayers), whole + common) << "cut " << cut;
  }
  // The smallest layer's state is its window's: nine rows of 64 values of two bytes.
  EXPECT_LT(common, 9u * 64 * 2);
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus<>(),
                            [](double x, double y) { return (x - y) * (x - y); });
}

// Two sequences of unequal length make several ubatches, whose rows llama.cpp computes in another order than the batch has.
TEST(DeepSeek4Stage, RowsComeInBatchOrderWhateverTheUbatches) {
  LlamaStage head(Config(0, 5));
  ASSERT_TRUE(head.ready());
  constexpr int kFirst = 3;
  constexpr int kSecond = 7;
  MixedBatch batch(kFirst, kSecond, /*outputs=*/true);
  const std::vector<std::vector<float>> rows = head.Rows(batch.Get());
  MixedBatch without_outputs(kFirst, kSecond, /*outputs=*/false);
  EXPECT_EQ(rows, head.Rows(without_outputs.Get()));

  // Alone a sequence's rows are in order. Its numbers differ a little then, but each row is nearest to itself.
  MixedBatch first(kFirst, 0, true);
  MixedBatch second(0, kSecond, true);
  std::vector<std::vector<float>> alone = head.Rows(first.Get());
  for (std::vector<float>& row : head.Rows(second.Get())) alone.push_back(std::move(row));
  for (size_t row = 0; row < rows.size(); ++row) {
    size_t nearest = 0;
    for (size_t other = 1; other < alone.size(); ++other) {
      if (Distance(rows[row], alone[other]) < Distance(rows[row], alone[nearest])) nearest = other;
    }
    EXPECT_EQ(nearest, static_cast<size_t>(batch.slots[row] * kFirst + batch.positions[row])) << "row " << row;
  }
}

// Upstream's gemma3 scales whatever it embeds when it sees token ids: a residual would be scaled once more on every stage.
TEST(Gemma3Stage, TokenIdsBesideTheResidualChangeNothingAndAreRefused) {
  LlamaStage middle(Config(1, 3, kGemma3));
  ASSERT_TRUE(middle.ready());
  MixedBatch rows(4, 0, true);
  std::vector<float> residual(4 * middle.row_values());
  for (size_t i = 0; i < residual.size(); ++i) residual[i] = std::sin(static_cast<float>(i));
  llama_batch batch = rows.Get();
  batch.embd = residual.data();
  const std::vector<std::vector<float>> with_tokens = middle.Rows(batch);
  batch.token = nullptr;
  EXPECT_EQ(with_tokens, middle.Rows(batch));

  absl::StatusOr<std::unique_ptr<ShardEngine>> engine = LoadLlamaEngine(Config(1, 3, kGemma3));
  ASSERT_TRUE(engine.ok()) << engine.status();
  EXPECT_FALSE((*engine)->shape().boundary_token_ids);
  const absl::Status refusal = Refusal(**engine, {1, 2}, std::vector<float>(2 * middle.row_values(), 0.5f));
  EXPECT_EQ(refusal.code(), absl::StatusCode::kInvalidArgument) << refusal;
}

}  // namespace
}  // namespace dgr
