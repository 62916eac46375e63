#include "engine/llama_text.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/chat_template.h"
#include "support/remedy.h"

namespace dgr {
namespace {

constexpr char kUseRaw[] = "run the command again with --raw, which sends the prompt as it stands";

// Fixture models have token ids alone; llama.cpp aborts when it is asked for their text.
bool HasNoText(const llama_vocab* vocab) { return llama_vocab_type(vocab) == LLAMA_VOCAB_TYPE_NONE; }

// A stretch of the prompt: one control token, or text that holds none.
struct Fragment {
  llama_token token = LLAMA_TOKEN_NULL;
  std::string text;
};

std::string Piece(const llama_vocab* vocab, llama_token token, bool special) {
  if (token == LLAMA_TOKEN_NULL) return {};
  std::string piece(64, '\0');
  int32_t n = llama_token_to_piece(vocab, token, piece.data(), static_cast<int32_t>(piece.size()), 0, special);
  if (n < 0) {
    piece.resize(static_cast<size_t>(-n));
    n = llama_token_to_piece(vocab, token, piece.data(), -n, 0, special);
  }
  piece.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return piece;
}

// Tokens that llama.cpp recognises by name in a template's text, the longest name first, as llama.cpp does.
std::vector<llama_token> NamedTokens(const llama_vocab* vocab) {
  std::vector<llama_token> named;
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    const auto attributes = static_cast<uint32_t>(llama_vocab_get_attr(vocab, token));
    const bool has_name = llama_vocab_get_text(vocab, token)[0] != '\0';
    if (has_name && (attributes & (LLAMA_TOKEN_ATTR_CONTROL | LLAMA_TOKEN_ATTR_UNKNOWN)) != 0) named.push_back(token);
  }
  const auto length = [&](llama_token token) { return std::string_view(llama_vocab_get_text(vocab, token)).size(); };
  std::stable_sort(named.begin(), named.end(), [&](llama_token a, llama_token b) { return length(a) > length(b); });
  return named;
}

// Cuts a template's text at the names of control tokens.
std::vector<Fragment> CutAtNames(const llama_vocab* vocab, const std::vector<llama_token>& named, const std::string& text) {
  std::vector<Fragment> fragments = {{LLAMA_TOKEN_NULL, text}};
  for (const llama_token token : named) {
    const std::string_view name = llama_vocab_get_text(vocab, token);
    if (text.find(name) == std::string::npos) continue;
    std::vector<Fragment> cut;
    for (Fragment& fragment : fragments) {
      if (fragment.token == LLAMA_TOKEN_NULL) {
        for (size_t at; (at = fragment.text.find(name)) != std::string::npos;) {
          cut.push_back({LLAMA_TOKEN_NULL, fragment.text.substr(0, at)});
          cut.push_back({token, {}});
          fragment.text.erase(0, at + name.size());
        }
      }
      cut.push_back(std::move(fragment));
    }
    fragments = std::move(cut);
  }
  return fragments;
}

void TrimFront(std::string& text) {
  text.erase(text.begin(), std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isspace(c) == 0; }));
}

void TrimBack(std::string& text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
}

// The rendered prompt as control tokens, which only the template gives, and the text between them. Text of template and message
// that stands together stays together, so that it is tokenized as it would be in the whole prompt.
std::vector<Fragment> Partition(const llama_vocab* vocab, const std::vector<llama_token>& named,
                                const std::vector<RenderedPart>& parts) {
  std::vector<Fragment> fragments;
  const auto add = [&](Fragment fragment) {
    const bool is_text = fragment.token == LLAMA_TOKEN_NULL;
    if (is_text && !fragments.empty() && fragments.back().token == LLAMA_TOKEN_NULL) {
      fragments.back().text += fragment.text;
    } else if (!is_text || !fragment.text.empty()) {
      fragments.push_back(std::move(fragment));
    }
  };
  for (const RenderedPart& part : parts) {
    if (part.from_message) {
      add({LLAMA_TOKEN_NULL, part.text});
    } else {
      for (Fragment& fragment : CutAtNames(vocab, named, part.text)) add(std::move(fragment));
    }
  }
  // Some tokens take the white space beside them.
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (fragments[i].token == LLAMA_TOKEN_NULL) continue;
    const auto attributes = static_cast<uint32_t>(llama_vocab_get_attr(vocab, fragments[i].token));
    if ((attributes & LLAMA_TOKEN_ATTR_LSTRIP) != 0 && i > 0) TrimBack(fragments[i - 1].text);
    if ((attributes & LLAMA_TOKEN_ATTR_RSTRIP) != 0 && i + 1 < fragments.size()) TrimFront(fragments[i + 1].text);
  }
  return fragments;
}

std::vector<llama_token> ControlTokens(const std::vector<Fragment>& fragments) {
  std::vector<llama_token> tokens;
  for (const Fragment& fragment : fragments) {
    if (fragment.token != LLAMA_TOKEN_NULL) tokens.push_back(fragment.token);
  }
  return tokens;
}

// Appends the tokens of `text`, in which no control token is recognised by its name.
absl::Status AppendText(const llama_vocab* vocab, const std::string& text, bool add_special, std::vector<int32_t>& tokens) {
  const size_t before = tokens.size();
  const auto length = static_cast<int32_t>(text.size());
  // One token for each byte is the most that a text needs, but for what a vocabulary adds around it.
  tokens.resize(before + text.size() + 4);
  const auto tokenize = [&] {
    return llama_tokenize(vocab, text.data(), length, tokens.data() + before, static_cast<int32_t>(tokens.size() - before),
                          add_special, /*parse_special=*/false);
  };
  int32_t n = tokenize();
  if (n < 0 && n != std::numeric_limits<int32_t>::min()) {
    tokens.resize(before + static_cast<size_t>(-n));
    n = tokenize();
  }
  if (n < 0) return absl::InternalError("llama.cpp cannot tokenize the prompt");
  tokens.resize(before + static_cast<size_t>(n));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Fragment>> UserTurn(const llama_vocab* vocab, const char* source, const std::string& text) {
  const ChatTemplate chat{source, Piece(vocab, llama_vocab_bos(vocab), true), Piece(vocab, llama_vocab_eos(vocab), true)};
  // A message whose text no template changes shows whether the template works, and which control tokens are its own.
  const std::string plain = "1234567890";
  const absl::StatusOr<std::vector<RenderedPart>> sample = RenderUserTurn(chat, plain);
  if (!sample.ok()) return WithRemedy(sample.status(), kUseRaw);
  if (std::none_of(sample->begin(), sample->end(),
                   [&](const RenderedPart& part) { return part.text.find(plain) != std::string::npos; })) {
    return WithRemedy(absl::FailedPreconditionError("the model's chat template leaves the message out of the prompt"), kUseRaw);
  }
  const absl::StatusOr<std::vector<RenderedPart>> parts = RenderUserTurn(chat, text);
  if (!parts.ok()) return WithRemedy(parts.status(), kUseRaw);
  const std::vector<llama_token> named = NamedTokens(vocab);
  std::vector<Fragment> fragments = Partition(vocab, named, *parts);
  // A filter of the template can lose the mark that tells the message's text from the template's.
  if (ControlTokens(fragments) != ControlTokens(Partition(vocab, named, *sample))) {
    return WithRemedy(absl::InvalidArgumentError("the message changes which control tokens the model's chat template writes"),
                      "take the names of control tokens out of the message, or run the command again with --raw");
  }
  return fragments;
}

absl::StatusOr<std::vector<int32_t>> TokenizeFragments(const llama_vocab* vocab, const std::vector<Fragment>& fragments) {
  // What llama.cpp puts around a whole prompt, unless the template has put it there.
  const llama_token bos = llama_vocab_bos(vocab), eos = llama_vocab_eos(vocab);
  std::vector<int32_t> tokens;
  if (llama_vocab_get_add_bos(vocab) && (fragments.empty() || fragments.front().token != bos)) tokens.push_back(bos);
  for (const Fragment& fragment : fragments) {
    if (fragment.token != LLAMA_TOKEN_NULL) {
      tokens.push_back(fragment.token);
    } else if (absl::Status status = AppendText(vocab, fragment.text, /*add_special=*/false, tokens); !status.ok()) {
      return status;
    }
  }
  if (llama_vocab_get_add_eos(vocab) && (fragments.empty() || fragments.back().token != eos)) tokens.push_back(eos);
  return tokens;
}

// The most bytes that one token stands for.
size_t LongestPiece(const llama_vocab* vocab) {
  size_t longest = 1;
  for (llama_token token = 0; token < llama_vocab_n_tokens(vocab); ++token) {
    longest = std::max(longest, std::string_view(llama_vocab_get_text(vocab, token)).size());
  }
  return longest;
}

absl::Status CheckSize(const llama_vocab* vocab, const std::string& text, uint32_t limit) {
  // Most prompts fit at one byte for a token, and need no look at the vocabulary.
  if (text.size() <= limit) return absl::OkStatus();
  const uint64_t most = uint64_t{limit} * LongestPiece(vocab);
  if (text.size() <= std::min<uint64_t>(most, std::numeric_limits<int32_t>::max() / 2)) return absl::OkStatus();
  return WithRemedy(absl::ResourceExhaustedError(
                        absl::StrCat("a prompt of ", text.size(), " bytes is more than context = ", limit, " tokens can hold")),
                    "shorten the prompt, or use a recipe with a larger context");
}

}  // namespace

absl::StatusOr<std::vector<int32_t>> Tokenize(const llama_model* model, const std::string& text, bool chat_template,
                                              uint32_t limit) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  if (HasNoText(vocab)) {
    return WithRemedy(absl::FailedPreconditionError("the model holds no vocabulary"), "send the prompt as token ids");
  }
  if (absl::Status status = CheckSize(vocab, text, limit); !status.ok()) return status;
  if (text.find('\0') != std::string::npos) return absl::InvalidArgumentError("the prompt holds a NUL byte");
  if (!chat_template) {
    std::vector<int32_t> tokens;
    if (absl::Status status = AppendText(vocab, text, /*add_special=*/true, tokens); !status.ok()) return status;
    return tokens;
  }
  const char* source = llama_model_chat_template(model, nullptr);
  if (source == nullptr) return WithRemedy(absl::FailedPreconditionError("the model holds no chat template"), kUseRaw);
  return TokenizeUserTurn(model, source, text);
}

absl::StatusOr<std::vector<int32_t>> TokenizeUserTurn(const llama_model* model, const char* source, const std::string& text) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  const absl::StatusOr<std::vector<Fragment>> fragments = UserTurn(vocab, source, text);
  if (!fragments.ok()) return fragments.status();
  return TokenizeFragments(vocab, *fragments);
}

std::string TokenPiece(const llama_model* model, int32_t token) {
  const llama_vocab* vocab = llama_model_get_vocab(model);
  if (HasNoText(vocab)) return {};
  return Piece(vocab, token, /*special=*/false);
}

bool EndsGeneration(const llama_model* model, int32_t token) { return llama_vocab_is_eog(llama_model_get_vocab(model), token); }

uint32_t VocabularySize(const llama_model* model) {
  return static_cast<uint32_t>(llama_vocab_n_tokens(llama_model_get_vocab(model)));
}

}  // namespace dgr
