#include "session/session_table.h"

#include <gtest/gtest.h>

#include <string>

namespace dgr {
namespace {

v1::OpenSession Open(const std::string& id, uint64_t epoch, uint32_t positions = 10) {
  v1::OpenSession open;
  open.mutable_session()->set_route_session_id(id);
  open.mutable_session()->set_route_epoch(epoch);
  open.set_max_positions(positions);
  return open;
}

class SessionTableTest : public testing::Test {
 protected:
  std::shared_ptr<Session> MustAdmit(const v1::OpenSession& open) {
    absl::StatusOr<std::shared_ptr<Session>> session = table_.Admit(open);
    EXPECT_TRUE(session.ok()) << session.status();
    return session.ok() ? *session : nullptr;
  }

  SessionTable table_{AdmissionBounds{.sessions = 2, .context = 100}};
};

TEST_F(SessionTableTest, GivesEachSessionASlotOfItsOwnAndTakesItBack) {
  const auto a = MustAdmit(Open("a", 1));
  const auto b = MustAdmit(Open("b", 1));
  EXPECT_EQ(a->slot, 0u);
  EXPECT_EQ(b->slot, 1u);
  const auto full = table_.Admit(Open("c", 1));
  EXPECT_EQ(full.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(full.status().message().find("sessions = 2"), absl::string_view::npos) << full.status();
  table_.ReleaseSlot(a->slot);
  EXPECT_EQ(MustAdmit(Open("c", 2))->slot, 0u);
}

TEST_F(SessionTableTest, NamesTheContextBound) {
  const auto refused = table_.Admit(Open("a", 1, 101));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("context = 100"), absl::string_view::npos) << refused.status();
  EXPECT_TRUE(table_.Admit(Open("a", 1, 100)).ok());
}

TEST_F(SessionTableTest, RefusesStaleEpochs) {
  const auto session = MustAdmit(Open("a", 5));
  table_.Publish(session);
  for (const uint64_t stale : {5, 4, 1}) {
    EXPECT_EQ(table_.Admit(Open("a", stale)).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  table_.Remove(*session);
  table_.ReleaseSlot(session->slot);
  EXPECT_EQ(table_.Admit(Open("a", 5)).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(table_.Admit(Open("a", 6)).ok());
}

TEST_F(SessionTableTest, FindsOnlyTheRightEpoch) {
  const auto session = MustAdmit(Open("a", 5));
  EXPECT_EQ(table_.Find(session->key()), nullptr);  // not published yet
  table_.Publish(session);
  EXPECT_EQ(table_.Find(Open("a", 5).session()), session);
  EXPECT_EQ(table_.Find(Open("a", 4).session()), nullptr);
  EXPECT_EQ(table_.Find(Open("a", 6).session()), nullptr);
  EXPECT_EQ(table_.Find(Open("b", 5).session()), nullptr);
}

TEST_F(SessionTableTest, ALargerEpochReplacesTheSmaller) {
  const auto older = MustAdmit(Open("a", 1));
  EXPECT_EQ(table_.Publish(older), nullptr);
  const auto newer = MustAdmit(Open("a", 2));
  EXPECT_EQ(table_.Publish(newer), older);
  table_.Remove(*older);  // late: must not take the newer one out
  EXPECT_EQ(table_.Find(newer->key()), newer);
  EXPECT_EQ(table_.open_sessions(), 1u);
}

TEST_F(SessionTableTest, RefusesMalformedKeys) {
  for (const std::string& id :
       {std::string(), std::string("a/b"), std::string("a b"), std::string(129, 'x'), std::string("a\0b", 3)}) {
    EXPECT_EQ(table_.Admit(Open(id, 1)).status().code(), absl::StatusCode::kInvalidArgument) << id;
  }
  EXPECT_EQ(table_.Admit(Open("a", 0)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table_.Admit(Open("a", 1, 0)).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(table_.Admit(Open(std::string(128, 'x'), 1)).ok());
}

}  // namespace
}  // namespace dgr
