#include "engine/lean_stage.h"

#include <malloc.h>
#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "gguf.h"

namespace dgr {
namespace {

// From this size on a block is mapped for itself and given back when it is freed (mallopt(3)); the first is glibc's own default.
constexpr int kReturnedBytes = 128 * 1024;
constexpr int kReturnedWhileServing = 4 * 1024 * 1024;

struct HeaderDeleter {
  void operator()(gguf_context* header) const { gguf_free(header); }
};

llama_model_kv_override Override(const std::string& key) {
  llama_model_kv_override override{};
  std::snprintf(override.key, sizeof override.key, "%s", key.c_str());
  return override;
}

}  // namespace

void ReturnLargeBlocks() { mallopt(M_MMAP_THRESHOLD, kReturnedBytes); }

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

void ReleaseLoadedPages(const std::string& model) {
  std::error_code ignored;
  const std::string folder = std::filesystem::canonical(model, ignored).parent_path().string();
  std::ifstream maps("/proc/self/maps");
  for (std::string line; !folder.empty() && std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    char access[5] = {};
    const size_t path = line.find('/');
    if (path == std::string::npos || line.compare(path, folder.size() + 1, folder + "/") != 0) continue;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR " %4s", &begin, &end, access) != 3) continue;
    // Only what nobody can have written to: the file holds the same bytes.
    if (std::strchr(access, 'w') != nullptr) continue;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);  // NOLINT: an address as the kernel tells it
  }
  malloc_trim(0);
  mallopt(M_MMAP_THRESHOLD, kReturnedWhileServing);
  mallopt(M_TRIM_THRESHOLD, 2 * kReturnedWhileServing);
}

}  // namespace dgr
