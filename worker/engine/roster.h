// Which architectures can be split into stages: the roster, engine/architectures.json, compiled in by CMake.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "support/identity.h"

namespace dgr {

// FAILED_PRECONDITION with its row for an architecture that runs have not shown to be splittable with this patch stack. Such a
// graph would read tensors that were never loaded, or compute something else in silence.
absl::Status CheckArchitecture(const std::string& architecture, const BuildIdentity& identity = Identity());

// general.architecture of the first file of a GGUF set, read without loading the model; empty where it does not say.
std::string ReadArchitecture(const std::string& path);

}  // namespace dgr
