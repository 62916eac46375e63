// Text to tokens and back, by the vocabulary and chat template in the GGUF.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "llama.h"

namespace dgr {

// Tokens of `text` as it stands, or wrapped as one user turn in the model's chat template. Control tokens come from the template
// alone: a control token's name inside `text` is text.
//   RESOURCE_EXHAUSTED   more bytes than `limit` tokens can hold; nothing was tokenized
//   FAILED_PRECONDITION  the model holds no vocabulary or no chat template, or the template cannot be used
//   INVALID_ARGUMENT     the text makes the template write other control tokens, or holds a NUL byte
// A refusal carries its remedy (support/remedy.h).
absl::StatusOr<std::vector<int32_t>> Tokenize(const llama_model* model, const std::string& text, bool chat_template,
                                              uint32_t limit);

// The part of Tokenize that wraps `text` as one user turn, in the chat template `source`.
absl::StatusOr<std::vector<int32_t>> TokenizeUserTurn(const llama_model* model, const char* source, const std::string& text);

// The bytes of one token; control tokens are empty, and so is every token of a model without text. May end inside a UTF-8
// sequence.
std::string TokenPiece(const llama_model* model, int32_t token);

bool EndsGeneration(const llama_model* model, int32_t token);

uint32_t VocabularySize(const llama_model* model);

}  // namespace dgr
