// What a stage does not need and llama.cpp would keep for it: a vocabulary it never reads, pages of the file it has copied.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"

namespace dgr {

// The threads share two heaps, and large blocks go back to the system when they are freed, until ReleaseLoadedPages. Left to
// itself, glibc keeps blocks of the size that were freed once: the lists of a vocabulary that a file's header holds, some 20 MiB.
void KeepHeapSmall();

// Overrides under which the file's vocabulary is counted but not built: for every stage but the head, which alone turns text into
// tokens and back. None where the file has no vocabulary or cannot be read; loading it says why.
std::vector<llama_model_kv_override> WithoutVocabulary(const std::string& model);

// Gives back the pages of the files under `path`'s folder that are mapped: they come back from the page cache where they are read
// again. While a model is loaded, what was just repacked would else be there twice, to the end.
void ReleaseFilePages(const std::string& path);

// Where the file at `path` is mapped: half-open ranges, in order.
std::vector<std::pair<uintptr_t, uintptr_t>> MappedRanges(const std::string& path);

// Gives back what loading left resident: the pages of the files, of the program's code, and the heap's free ones. What no tensor
// of `model` lies in, weights that were repacked above all, is put out of reach: the kernel would map it again around what is
// used, up to megabytes of it. From now on the heap keeps large blocks: rows and logits are of one size at every step, and would
// be mapped and zeroed each time.
void ReleaseLoadedPages(const std::string& path, const llama_model* model);

}  // namespace dgr
