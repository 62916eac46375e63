// What a caller can do about a refusal, carried beside the words that say what happened.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace dgr {

// Payload of a status, and trailing metadata of the call that ends with it. ASCII.
inline constexpr char kRemedyKey[] = "dgr-remedy";

inline absl::Status WithRemedy(absl::Status status, absl::string_view remedy) {
  status.SetPayload(kRemedyKey, absl::Cord(remedy));
  return status;
}

}  // namespace dgr
