// Log lines for people, on stderr. stdout belongs to the machine-readable messages of support/serve.h.
#pragma once

#include "absl/strings/string_view.h"

namespace dgr {

// One line, with a UTC time stamp; whole lines even from several threads.
void Log(absl::string_view message);

// Routes llama.cpp's own messages of warning level and above to stderr, and drops the rest.
void QuietLlamaLog();

}  // namespace dgr
