#include "engine/roster.h"

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gguf.h"

namespace dgr {
namespace {

struct Row {
  absl::string_view name;
  absl::string_view status;
  absl::string_view reason;
};

// kRosterPin, kRosterStack and kRows.
#include "roster_rows.inc"

struct GgufDeleter {
  void operator()(gguf_context* context) const { gguf_free(context); }
};

}  // namespace

absl::Status CheckArchitecture(const std::string& architecture, const BuildIdentity& identity) {
  if (identity.pin != kRosterPin || identity.stack != kRosterStack) {
    return absl::FailedPreconditionError(
        "the roster of architectures was made with another patch stack, so none is known to be right with this one; "
        "dgrctl arch certify makes it anew");
  }
  const auto* row =
      std::find_if(kRows.begin(), kRows.end(), [&architecture](const Row& each) { return each.name == architecture; });
  if (row == kRows.end()) {
    return absl::FailedPreconditionError(absl::StrCat("the architecture '", architecture, "' is not on the roster"));
  }
  if (row->status == "certified" || row->status == "restricted") return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("the architecture '", architecture, "' cannot be split: it is ", row->status, ": ", row->reason));
}

std::string ReadArchitecture(const std::string& path) {
  const gguf_init_params params{/*no_alloc=*/true, /*ctx=*/nullptr};
  const std::unique_ptr<gguf_context, GgufDeleter> file(gguf_init_from_file(path.c_str(), params));
  if (!file) return {};
  const int64_t key = gguf_find_key(file.get(), "general.architecture");
  if (key < 0 || gguf_get_kv_type(file.get(), key) != GGUF_TYPE_STRING) return {};
  return gguf_get_val_str(file.get(), key);
}

}  // namespace dgr
