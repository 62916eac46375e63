#include "engine/llama_text.h"

#include <limits>

#include "absl/status/status.h"

namespace dgr {
namespace {

// Fixture models have token ids alone; llama.cpp aborts when it is asked for their text.
bool HasNoText(const llama_vocab* vocab) { return llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE; }

std::vector<int32_t> TokenizeAll(const llama_vocab* vocab, const std::string& text, bool parse_special) {
  constexpr bool add_special = true;
  const auto length = static_cast<int32_t>(text.size());
  const int32_t needed = -llama_tokenize(vocab, text.data(), length, nullptr, 0, add_special, parse_special);
  if (needed <= 0) return {};
  std::vector<int32_t> tokens(static_cast<size_t>(needed));
  const int32_t n = llama_tokenize(vocab, text.data(), length, tokens.data(), needed, add_special, parse_special);
  tokens.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return tokens;
}

absl::StatusOr<std::string> ApplyTemplate(const llama_model* model, const std::string& user_text) {
  const char* form = llama_model_chat_template(model, nullptr);
  if (form == nullptr) {
    return absl::FailedPreconditionError("the model holds no chat template; send the prompt as it stands (--raw)");
  }
  const llama_chat_message message{"user", user_text.c_str()};
  std::string text(user_text.size() + 1024, '\0');
  int32_t n = llama_chat_apply_template(form, &message, 1, true, text.data(), static_cast<int32_t>(text.size()));
  if (n > static_cast<int32_t>(text.size())) {
    text.resize(static_cast<size_t>(n));
    n = llama_chat_apply_template(form, &message, 1, true, text.data(), n);
  }
  if (n < 0) {
    return absl::FailedPreconditionError(
        "llama.cpp does not know the model's chat template; send the prompt as it stands (--raw)");
  }
  text.resize(static_cast<size_t>(n));
  return text;
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> Tokenize(const llama_model* model, const std::string& text, bool chat_template) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  if (HasNoText(vocab)) return absl::FailedPreconditionError("the model holds no vocabulary; send the prompt as token ids");
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) / 2) {
    return absl::InvalidArgumentError("the prompt is longer than 1 GiB");
  }
  if (text.find('\0') != std::string::npos) return absl::InvalidArgumentError("the prompt holds a NUL byte");
  if (!chat_template) return TokenizeAll(vocab, text, /*parse_special=*/false);
  absl::StatusOr<std::string> turn = ApplyTemplate(model, text);
  if (!turn.ok()) return turn.status();
  return TokenizeAll(vocab, *turn, /*parse_special=*/true);
}

std::string TokenPiece(const llama_model* model, int32_t token) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  if (HasNoText(vocab)) return {};
  std::string piece(64, '\0');
  int32_t n = llama_token_to_piece(vocab, token, piece.data(), static_cast<int32_t>(piece.size()), 0, false);
  if (n < 0) {
    piece.resize(static_cast<size_t>(-n));
    n = llama_token_to_piece(vocab, token, piece.data(), -n, 0, false);
  }
  piece.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return piece;
}

bool EndsGeneration(const llama_model* model, int32_t token) { return llama_vocab_is_eog(llama_model_get_vocab(model), token); }

uint32_t VocabularySize(const llama_model* model) {
  return static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
}

}  // namespace dgr
