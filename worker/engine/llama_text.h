// Text to tokens and back, by the vocabulary and chat template in the GGUF.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "llama.h"

namespace dgr {

// Tokens of `text` as it stands, or wrapped as one user turn in the model's chat template. In a template special tokens are
// recognised, as llama.cpp's own server does. FAILED_PRECONDITION: the model holds no vocabulary, or no template that llama.cpp
// knows.
absl::StatusOr<std::vector<int32_t>> Tokenize(const llama_model* model, const std::string& text, bool chat_template);

// The bytes of one token; control tokens are empty, and so is every token of a model without text. May end inside a UTF-8
// sequence.
std::string TokenPiece(const llama_model* model, int32_t token);

bool EndsGeneration(const llama_model* model, int32_t token);

uint32_t VocabularySize(const llama_model* model);

}  // namespace dgr
