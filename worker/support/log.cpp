#include "support/log.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>

#include "llama.h"

namespace dgr {
namespace {

std::mutex g_mutex;

}  // namespace

void Log(absl::string_view message) {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char stamp[32];
  std::strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
  const std::lock_guard lock(g_mutex);
  std::fprintf(stderr, "%s.%03dZ %.*s\n", stamp, static_cast<int>(milliseconds), static_cast<int>(message.size()),
               message.data());
}

void QuietLlamaLog() {
  // ggml would print the backtrace of an abort on stdout, which carries the ready line and nothing else.
  setenv("GGML_NO_BACKTRACE", "1", /*overwrite=*/1);
  llama_log_set(
      [](ggml_log_level level, const char* text, void*) {
        // A continuation belongs to the line before it.
        static thread_local bool shown = false;
        if (level != GGML_LOG_LEVEL_CONT) shown = level >= GGML_LOG_LEVEL_WARN;
        if (shown) std::fputs(text, stderr);
      },
      nullptr);
}

}  // namespace dgr
