#include "support/identity.h"

namespace dgr {

BuildIdentity Identity() { return {DGR_PIN, DGR_STACK, DGR_LANE, DGR_ISA}; }

}  // namespace dgr
