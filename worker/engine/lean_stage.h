// What a stage does not need and llama.cpp would keep for it: a vocabulary it never reads, pages of the file it has copied.
#pragma once

#include <string>
#include <vector>

#include "llama.h"

namespace dgr {

// Large blocks of the heap go back to the system when they are freed, until ReleaseLoadedPages. Left to itself, glibc keeps
// blocks of the size that were freed once: the lists of a vocabulary that a file's header holds, some 20 MiB of them.
void ReturnLargeBlocks();

// Overrides under which the file's vocabulary is counted but not built: for every stage but the head, which alone turns text into
// tokens and back. None where the file has no vocabulary or cannot be read; loading it says why.
std::vector<llama_model_kv_override> WithoutVocabulary(const std::string& model);

// Gives back what loading left resident: pages of the files under `model`'s folder that are mapped, and the heap's free pages.
// From now on the heap keeps large blocks: rows and logits are of one size at every step, and would be mapped and zeroed each
// time. Weights come back from the page cache as layers are computed; weights that were repacked at loading never do.
void ReleaseLoadedPages(const std::string& model);

}  // namespace dgr
