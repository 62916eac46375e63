// What this binary was built from, compiled in by worker/CMakeLists.txt.
#pragma once

namespace dgr {

struct BuildIdentity {
  const char* pin;    // upstream commit
  const char* stack;  // digest of the patch stack, "none" for the reference
  const char* lane;
  const char* isa;
};

BuildIdentity Identity();

}  // namespace dgr
