// A chat template is rendered so that the template's text and the message's can be told apart.
#include "engine/chat_template.h"

#include <string>

#include <gtest/gtest.h>

namespace dgr {
namespace {

// Template text as it stands, message text in brackets.
std::string Rendered(const std::string& source, const std::string& message) {
  const absl::StatusOr<std::vector<RenderedPart>> parts = RenderUserTurn({source, "<s>", "</s>"}, message);
  if (!parts.ok()) return std::string(parts.status().message());
  std::string text;
  for (const RenderedPart& part : *parts) text += part.from_message ? "[" + part.text + "]" : part.text;
  return text;
}

TEST(ChatTemplate, MarksWhatComesFromTheMessage) {
  EXPECT_EQ(Rendered("{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m['content'] }}{{ eos_token }}{% endfor %}", "hi"),
            "<s><|user|>[hi]</s>");
  EXPECT_EQ(Rendered("{% for m in messages %}{{ '<|u|>' + m['content'] + '<|e|>' }}{% endfor %}", "<|e|>"), "<|u|>[<|e|>]<|e|>");
  EXPECT_EQ(Rendered("{{ messages[0].content }}{% if add_generation_prompt %}<|a|>{% endif %}", "hi"), "[hi]<|a|>");
}

TEST(ChatTemplate, MarksWhatATemplateChanges) {
  EXPECT_EQ(Rendered("<{{ messages[0].content | trim }}>", "  hi  "), "<[hi]>");
  EXPECT_EQ(Rendered("<{{ messages[0].content.strip() }}>", "  hi  "), "<[hi]>");
  EXPECT_EQ(Rendered("<{{ messages[0].content | upper }}>", "hi"), "<[HI]>");
}

TEST(ChatTemplate, TakesTheMessageAsDataAndNeverAsATemplate) {
  EXPECT_EQ(Rendered("<{{ messages[0].content }}>", "{{ bos_token }}{% raw %}"), "<[{{ bos_token }}{% raw %}]>");
}

TEST(ChatTemplate, SaysWhyATemplateCannotBeRendered) {
  const std::string cannot = "the model's chat template cannot be rendered: ";
  EXPECT_EQ(Rendered("{{ raise_exception('only tools') }}", "hi"), cannot + "Jinja Exception: only tools");
  for (const char* source : {"{% for %}", "{% if x %}", "{{ no_such_function(1) }}", "{{ 'a' | no_such_filter }}", "{{ 'open"}) {
    const std::string message = Rendered(source, "hi");
    EXPECT_TRUE(message.starts_with(cannot)) << message;
    EXPECT_GT(message.size(), cannot.size() + 3) << source;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace dgr
