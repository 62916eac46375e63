#include "engine/model_files.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/lean_stage.h"

namespace dgr {
namespace {

// "NAME-00001-of-00004.gguf", as llama.cpp's llama_split_path writes it.
std::vector<std::string> PartPaths(const std::string& first) {
  constexpr size_t kTail = sizeof("-00001-of-00004.gguf") - 1;
  if (first.size() <= kTail) return {first};
  const std::string tail = first.substr(first.size() - kTail);
  uint32_t count = 0;
  if (!absl::StartsWith(tail, "-00001-of-") || !absl::EndsWith(tail, ".gguf") || !absl::SimpleAtoi(tail.substr(10, 5), &count)) {
    return {first};
  }
  std::vector<std::string> paths;
  for (uint32_t part = 1; part <= count; ++part) {
    paths.push_back(absl::StrFormat("%s-%05u-of-%05u.gguf", first.substr(0, first.size() - kTail), part, count));
  }
  return paths;
}

bool SameTime(const timespec& one, const timespec& other) { return one.tv_sec == other.tv_sec && one.tv_nsec == other.tv_nsec; }

// What a signal handler may look at: fixed memory, filled before the handler is there.
struct MappedPart {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  char line[512] = {};
};
constexpr size_t kMaxMapped = 256;
MappedPart mapped_parts[kMaxMapped];
size_t mapped_count = 0;
std::atomic_flag telling;

constexpr char kUnknown[] = "SIGBUS: a file that this process has mapped shrank or cannot be read\n";

extern "C" void OnSigbus(int number, siginfo_t* info, void*) {
  // Several compute threads reach the missing pages at once: the first tells, the others wait for the end.
  if (telling.test_and_set()) {
    for (;;) pause();
  }
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);  // NOLINT: to compare it with those
  const char* line = kUnknown;
  for (size_t i = 0; i < mapped_count; ++i) {
    if (address >= mapped_parts[i].begin && address < mapped_parts[i].end) line = mapped_parts[i].line;
  }
  (void)!write(STDERR_FILENO, line, strlen(line));
  // The signal ends the process when the instruction runs again, and the parent sees which signal it was.
  signal(number, SIG_DFL);
}

}  // namespace

absl::StatusOr<ModelFiles> ModelFiles::Open(const std::string& first) {
  ModelFiles files;
  for (std::string& path : PartPaths(first)) {
    Part part;
    part.descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (part.descriptor < 0 || fstat(part.descriptor, &part.state) != 0) {
      const int error = errno;
      if (part.descriptor >= 0) close(part.descriptor);
      return absl::FailedPreconditionError(absl::StrCat("cannot open the model file ", path, ": ", strerror(error)));
    }
    part.path = std::move(path);
    files.parts_.push_back(std::move(part));
  }
  return files;
}

ModelFiles::ModelFiles(ModelFiles&& other) noexcept : parts_(std::exchange(other.parts_, {})) {}

ModelFiles::~ModelFiles() {
  for (const Part& part : parts_) close(part.descriptor);
}

absl::Status ModelFiles::Check() const {
  for (const Part& part : parts_) {
    struct stat now = {};
    if (fstat(part.descriptor, &now) != 0) {
      return absl::DataLossError(absl::StrCat("the model file ", part.path, " cannot be looked at: ", strerror(errno)));
    }
    if (now.st_size == part.state.st_size && SameTime(now.st_mtim, part.state.st_mtim) &&
        SameTime(now.st_ctim, part.state.st_ctim)) {
      continue;
    }
    return absl::DataLossError(absl::StrCat("the model file ", part.path,
                                            " was changed while this process had it loaded (it was ", part.state.st_size,
                                            " bytes, it is ", now.st_size, " bytes); what it computes can no longer be trusted"));
  }
  return absl::OkStatus();
}

void ModelFiles::NameInSigbus() const {
  mapped_count = 0;
  for (const Part& part : parts_) {
    for (const auto& [begin, end] : MappedRanges(part.path)) {
      if (mapped_count == kMaxMapped) break;
      MappedPart& mapped = mapped_parts[mapped_count];
      mapped.begin = begin;
      mapped.end = end;
      std::snprintf(mapped.line, sizeof mapped.line, "SIGBUS: the model file %s shrank or cannot be read\n", part.path.c_str());
      ++mapped_count;
    }
  }
  struct sigaction action = {};
  action.sa_sigaction = &OnSigbus;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

}  // namespace dgr
