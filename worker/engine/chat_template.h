// A model's chat template, rendered by upstream's Jinja engine. The rendering tells the template's own text from the message's.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace dgr {

struct ChatTemplate {
  std::string source;  // Jinja
  std::string bos, eos;
};

struct RenderedPart {
  bool from_message = false;
  std::string text;
};

// `message` as one user turn, followed by what lets the model answer. FAILED_PRECONDITION: the template cannot be rendered.
absl::StatusOr<std::vector<RenderedPart>> RenderUserTurn(const ChatTemplate& chat, const std::string& message);

}  // namespace dgr
