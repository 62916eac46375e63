#include "engine/roster.h"

#include <gtest/gtest.h>

namespace dgr {
namespace {

TEST(Roster, AllowsWhatWasProven) { EXPECT_TRUE(CheckArchitecture("llama").ok()); }

TEST(Roster, RefusesByRowAndByName) {
  const absl::Status listed = CheckArchitecture("t5");
  EXPECT_EQ(listed.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(listed.message().find("'t5' cannot be split: it is unsupported: an encoder"), std::string::npos) << listed;
  EXPECT_NE(CheckArchitecture("no-such").message().find("is not on the roster"), std::string::npos);
}

TEST(Roster, SaysNothingOfAnotherStackOrPin) {
  BuildIdentity other = Identity();
  other.stack = "0000";
  EXPECT_NE(CheckArchitecture("llama", other).message().find("another patch stack"), std::string::npos);
  other = Identity();
  other.pin = "0000";
  EXPECT_FALSE(CheckArchitecture("llama", other).ok());
}

TEST(Roster, AFileThatIsNoModelHasNoArchitecture) { EXPECT_EQ(ReadArchitecture("/dev/null"), ""); }

}  // namespace
}  // namespace dgr
