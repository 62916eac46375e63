#include "engine/chat_template.h"

#include <exception>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "jinja/lexer.h"
#include "jinja/parser.h"
#include "jinja/runtime.h"

namespace dgr {
namespace {

// The engine quotes the template's source around the reason, over several lines.
std::string Reason(const std::string& error) {
  constexpr std::string_view mark = "\nError: ";
  const size_t at = error.rfind(mark);
  const std::string reason = at == std::string::npos ? error : error.substr(at + mark.size());
  return reason.substr(0, reason.find('\n'));
}

}  // namespace

absl::StatusOr<std::vector<RenderedPart>> RenderUserTurn(const ChatTemplate& chat, const std::string& message) {
  try {
    jinja::lexer lexer;
    const jinja::program program = jinja::parse_from_tokens(lexer.tokenize(chat.source));
    jinja::context context(chat.source);
    auto content = jinja::mk_val<jinja::value_string>(message);
    content->mark_input();
    auto turn = jinja::mk_val<jinja::value_object>();
    turn->insert("role", jinja::mk_val<jinja::value_string>(std::string("user")));
    turn->insert("content", content);
    auto messages = jinja::mk_val<jinja::value_array>();
    messages->push_back(turn);
    context.set_val("messages", messages);
    context.set_val("bos_token", jinja::mk_val<jinja::value_string>(chat.bos));
    context.set_val("eos_token", jinja::mk_val<jinja::value_string>(chat.eos));
    context.set_val("add_generation_prompt", jinja::mk_val<jinja::value_bool>(true));
    jinja::runtime runtime(context);
    const jinja::value_string rendered = jinja::runtime::gather_string_parts(runtime.execute(program));
    std::vector<RenderedPart> parts;
    for (const jinja::string_part& part : rendered->val_str.parts) {
      if (!part.val.empty()) parts.push_back({part.is_input, part.val});
    }
    return parts;
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat("the model's chat template cannot be rendered: ", Reason(error.what())));
  }
}

}  // namespace dgr
