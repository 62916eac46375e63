#include "engine/lean_stage.h"

#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gguf.h"
#include "llama-model.h"

namespace dgr {
namespace {

// From this size on a block is mapped for itself and given back when it is freed (mallopt(3)); the first is glibc's own default.
constexpr int kReturnedBytes = 128 * 1024;
constexpr int kReturnedWhileServing = 4 * 1024 * 1024;
// What one thread has freed serves the others: a heap for each of gRPC's threads would keep its own.
constexpr int kHeaps = 2;

struct HeaderDeleter {
  void operator()(gguf_context* header) const { gguf_free(header); }
};

llama_model_kv_override Override(const std::string& key) {
  llama_model_kv_override override{};
  std::snprintf(override.key, sizeof override.key, "%s", key.c_str());
  return override;
}

// Half-open, whole pages.
struct Pages {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

void* Address(uintptr_t address) { return reinterpret_cast<void*>(address); }  // NOLINT: as the kernel tells them

// Where the tensors lie, in order.
std::vector<Pages> TensorPages(const llama_model* model) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  std::vector<Pages> pages;
  for (const auto& [name, tensor] : llama_internal_get_tensor_map(model)) {
    const auto data = reinterpret_cast<uintptr_t>(tensor->data);  // NOLINT: to compare it with those
    pages.push_back({data / page * page, (data + ggml_nbytes(tensor) + page - 1) / page * page});
  }
  std::sort(pages.begin(), pages.end(), [](const Pages& a, const Pages& b) { return a.begin < b.begin; });
  return pages;
}

struct Mapping : Pages {
  std::string file;
  std::string access;  // as in "r-xp"
};

// The files that are mapped, as proc_pid_maps(5) lists them.
std::vector<Mapping> MappedFiles() {
  std::vector<Mapping> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    Mapping mapped;
    char access[5] = {};
    const size_t slash = line.find('/');
    if (slash == std::string::npos) continue;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &mapped.begin, &mapped.end, access) != 3) continue;
    mapped.file = line.substr(slash);
    mapped.access = access;
    found.push_back(std::move(mapped));
  }
  return found;
}

// Those under `model`'s folder that llama.cpp mapped: shared and to be read, as no program or library is.
std::vector<Mapping> MappedWeights(const std::string& model) {
  std::error_code gone;
  const std::string folder = std::filesystem::canonical(model, gone).parent_path().string() + "/";
  if (gone) return {};
  std::vector<Mapping> found = MappedFiles();
  std::erase_if(found, [&](const Mapping& mapped) { return !mapped.file.starts_with(folder) || mapped.access != "r--s"; });
  return found;
}

void Release(const Pages& pages) { madvise(Address(pages.begin), pages.end - pages.begin, MADV_DONTNEED); }

void PutOutOfReach(uintptr_t begin, uintptr_t end) {
  if (begin < end) mprotect(Address(begin), end - begin, PROT_NONE);
}

}  // namespace

void KeepHeapSmall() {
  mallopt(M_MMAP_THRESHOLD, kReturnedBytes);
  mallopt(M_ARENA_MAX, kHeaps);
}

std::vector<llama_model_kv_override> WithoutVocabulary(const std::string& model) {
  const gguf_init_params params{/*no_alloc=*/true, /*ctx=*/nullptr};
  const std::unique_ptr<gguf_context, HeaderDeleter> header(gguf_init_from_file(model.c_str(), params));
  if (!header) return {};
  const int64_t tokens = gguf_find_key(header.get(), "tokenizer.ggml.tokens");
  const int64_t architecture = gguf_find_key(header.get(), "general.architecture");
  if (tokens < 0 || gguf_get_kv_type(header.get(), tokens) != GGUF_TYPE_ARRAY || architecture < 0 ||
      gguf_get_kv_type(header.get(), architecture) != GGUF_TYPE_STRING) {
    return {};
  }
  llama_model_kv_override kind = Override("tokenizer.ggml.model");
  kind.tag = LLAMA_KV_OVERRIDE_TYPE_STR;
  std::snprintf(kind.val_str, sizeof kind.val_str, "no_vocab");
  llama_model_kv_override size = Override(absl::StrCat(gguf_get_val_str(header.get(), architecture), ".vocab_size"));
  size.tag = LLAMA_KV_OVERRIDE_TYPE_INT;
  size.val_i64 = static_cast<int64_t>(gguf_get_arr_n(header.get(), tokens));
  return {kind, size};
}

void ReleaseFilePages(const std::string& path) {
  for (const Mapping& mapped : MappedWeights(path)) Release(mapped);
}

std::vector<std::pair<uintptr_t, uintptr_t>> MappedRanges(const std::string& path) {
  std::error_code gone;
  const std::string file = std::filesystem::canonical(path, gone).string();
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  if (gone) return ranges;
  for (const Mapping& mapped : MappedFiles()) {
    if (mapped.file != file) continue;
    if (!ranges.empty() && ranges.back().second == mapped.begin) {
      ranges.back().second = mapped.end;
    } else {
      ranges.emplace_back(mapped.begin, mapped.end);
    }
  }
  return ranges;
}

void ReleaseLoadedPages(const std::string& path, const llama_model* model) {
  const std::vector<Pages> tensors = TensorPages(model);
  for (const Mapping& mapped : MappedWeights(path)) {
    Release(mapped);
    uintptr_t unused = mapped.begin;
    for (const Pages& tensor : tensors) {
      if (tensor.end <= unused || tensor.begin >= mapped.end) continue;
      PutOutOfReach(unused, tensor.begin);
      unused = tensor.end;
    }
    PutOutOfReach(unused, mapped.end);
  }
  std::error_code ignored;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  for (const Mapping& mapped : MappedFiles()) {
    if (mapped.file == program && mapped.access == "r-xp") Release(mapped);  // nothing is relocated into code
  }
  malloc_trim(0);
  mallopt(M_MMAP_THRESHOLD, kReturnedWhileServing);
  mallopt(M_TRIM_THRESHOLD, 2 * kReturnedWhileServing);
}

}  // namespace dgr
