#include "comm/aggregator/members.h"

#include <gtest/gtest.h>

#include <chrono>

namespace tensorlightning {

// Members only passes sessions on; here they are just identities.
class Session {};

namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

Hello HelloOf(int32_t rank, uint64_t attempt, const char* name = "worker") {
  Hello hello;
  hello.rank = rank;
  hello.attempt = attempt;
  hello.name = name;
  return hello;
}

struct MembersTest : testing::Test {
  Members::Admission Admit(int32_t rank, uint64_t attempt) {
    const auto admitted =
        members.Admit(HelloOf(rank, attempt), session, milliseconds(hours(1)));
    EXPECT_TRUE(admitted.ok());
    return *admitted;
  }

  Members members{4};
  std::shared_ptr<Session> session = std::make_shared<Session>();
};

TEST_F(MembersTest, GivesTheLowestFreeRank) {
  EXPECT_EQ(Admit(kAnyRank, 1).member->rank, 0u);
  const auto one = Admit(kAnyRank, 2).member;
  EXPECT_EQ(one->rank, 1u);
  EXPECT_EQ(Admit(3, 3).member->rank, 3u);
  EXPECT_EQ(Admit(kAnyRank, 4).member->rank, 2u);
  EXPECT_EQ(members.live(), 4u);
  EXPECT_TRUE(members.Leave(*one));
  EXPECT_EQ(members.live(), 3u);
  EXPECT_EQ(Admit(kAnyRank, 5).member->rank, 1u);
}

TEST_F(MembersTest, RefusesMoreThanItTakes) {
  for (int i = 0; i < 4; ++i) Admit(kAnyRank, 1);
  const auto full =
      members.Admit(HelloOf(kAnyRank, 9), session, milliseconds(1));
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().code, ErrorCode::kUnavailable);
  const auto never = members.Admit(HelloOf(4, 9), session, milliseconds(1));
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(MembersTest, ALaterAttemptFencesOffAnEarlierOneForGood) {
  const auto old = Admit(1, 10);
  const auto next = std::make_shared<Session>();
  const auto taken =
      members.Admit(HelloOf(1, 11, "newer"), next, milliseconds(hours(1)));
  ASSERT_TRUE(taken.ok());
  EXPECT_EQ(taken->previous, session);
  EXPECT_FALSE(taken->same_attempt);
  EXPECT_EQ(members.live(), 1u);
  EXPECT_FALSE(members.Leave(*old.member)) << "it is no member any more";
  EXPECT_EQ(members.live(), 1u);

  EXPECT_TRUE(members.Leave(*taken->member));
  const auto refused = members.Admit(HelloOf(1, 10), session, milliseconds(1));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kRefused);
  EXPECT_NE(refused.error().message.find("newer"), std::string::npos);
}

TEST_F(MembersTest, TheSameAttemptIsTheSameWorkerAsLongAsItsLeaseRuns) {
  const auto first = Admit(0, 5);
  EXPECT_TRUE(Admit(0, 5).same_attempt);
  EXPECT_EQ(Admit(0, 5).member, first.member);
  const auto late = Deadline::Clock::now() + hours(2);
  const auto expired = members.TakeExpired(late);
  ASSERT_EQ(expired.size(), 1u);
  EXPECT_EQ(expired[0].member, first.member);
  EXPECT_EQ(expired[0].session, session);
  EXPECT_EQ(members.live(), 0u);
  EXPECT_TRUE(members.TakeExpired(late).empty());
  EXPECT_FALSE(Admit(0, 5).same_attempt) << "its views are gone";
}

TEST_F(MembersTest, ARankWhoseLastOwnerLooksNewerIsNotGivenAway) {
  const auto owner = Admit(0, 100);
  EXPECT_TRUE(members.Leave(*owner.member));
  EXPECT_EQ(Admit(kAnyRank, 50).member->rank, 1u);
}

TEST_F(MembersTest, RanksOfBeforeARestartAreKeptForTheirOwners) {
  members.Reserve({0, 2}, milliseconds(hours(1)));
  EXPECT_EQ(Admit(kAnyRank, 9).member->rank, 1u);
  EXPECT_EQ(Admit(kAnyRank, 9).member->rank, 3u);
  EXPECT_EQ(Admit(0, 1).member->rank, 0u) << "its owner is back";
  members.Reserve({2}, milliseconds(-1));
  EXPECT_EQ(Admit(kAnyRank, 9).member->rank, 2u) << "nobody came in time";
}

TEST_F(MembersTest, DetachingAnOldSessionLeavesTheNewOne) {
  const auto member = Admit(0, 1).member;
  const auto next = std::make_shared<Session>();
  ASSERT_TRUE(members.Admit(HelloOf(0, 1), next, milliseconds(1)).ok());
  members.Detach(*member, session.get());
  EXPECT_EQ(members.SessionOf(0), next);
  members.Detach(*member, next.get());
  EXPECT_EQ(members.SessionOf(0), nullptr);
}

}  // namespace
}  // namespace tensorlightning
