// Messages: what comes back, what is cut, and what is refused. The bytes
// themselves are in golden_test.cc.
#include "comm/messages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

namespace tensorlightning {
namespace {

Bytes Changed(Bytes bytes, size_t offset, uint8_t value) {
  bytes.at(offset) = static_cast<std::byte>(value);
  return bytes;
}

Hello LongestHello() {
  Hello hello;
  hello.nonce.fill(std::byte{0xaa});
  hello.fingerprint.fill(std::byte{0xbb});
  hello.attempt = UINT64_MAX;
  hello.rank = std::numeric_limits<int32_t>::max();
  hello.job = std::string(kMaxIdBytes, 'j');
  hello.name = std::string(kMaxIdBytes, 'n');
  return hello;
}

Joined SomeJoined() { return {3, 4, 5, 10000, 6, 9, true}; }

TEST(Messages, RefuseEveryPrefixAndAnyByteMore) {
  struct Case {
    Bytes bytes;
    std::function<bool(std::span<const std::byte>)> parses;
  };
  Join join;
  join.layout.resize(10);
  const std::vector<Case> cases = {
      {LongestHello().Encode(), [](auto b) { return Hello::Parse(b).ok(); }},
      {Challenge{{}, true}.Encode(),
       [](auto b) { return Challenge::Parse(b).ok(); }},
      {join.Encode(), [](auto b) { return Join::Parse(b).ok(); }},
      {SomeJoined().Encode(), [](auto b) { return Joined::Parse(b).ok(); }},
      {Complaint{WireError::kJob, "no"}.Encode(),
       [](auto b) { return Complaint::Parse(b).ok(); }},
      {Digest{1, 2, 3}.Encode(), [](auto b) { return Digest::Parse(b).ok(); }}};
  for (const Case& c : cases) {
    EXPECT_TRUE(c.parses(c.bytes));
    for (size_t n = 0; n < c.bytes.size(); ++n) {
      EXPECT_FALSE(c.parses(std::span(c.bytes).first(n))) << n;
    }
    Bytes longer = c.bytes;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(c.parses(longer));
  }
}

TEST(Hello, ComesBackAndFitsAGreetingAtItsLongest) {
  const Hello hello = LongestHello();
  const Bytes bytes = hello.Encode();
  EXPECT_LE(bytes.size(), kMaxGreetingBytes);
  const Result<Hello> parsed = Hello::Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, hello);
}

TEST(Hello, CutsLongNamesBetweenCharacters) {
  Hello hello;
  hello.job = std::string(1000, 'j');
  hello.name = std::string(kMaxIdBytes - 1, 'n') + "ü and more";
  const Result<Hello> parsed = Hello::Parse(hello.Encode());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->job, std::string(kMaxIdBytes, 'j'));
  EXPECT_EQ(parsed->name, std::string(kMaxIdBytes - 1, 'n'));
}

TEST(Hello, RefusesLongNamesControlCharactersAndNegativeRanks) {
  Hello hello;
  hello.rank = -2;
  EXPECT_FALSE(Hello::Parse(hello.Encode()).ok());
  for (const char* text : {"a\nb", "\x1b[2J", "\x7f"}) {
    hello = {};
    hello.job = text;
    EXPECT_FALSE(Hello::Parse(hello.Encode()).ok());
    hello = {};
    hello.name = text;
    EXPECT_FALSE(Hello::Parse(hello.Encode()).ok());
  }
  // 65 bytes of name, which Encode() would not write.
  Bytes bytes = Hello().Encode();
  bytes.back() = std::byte{65};
  bytes.resize(bytes.size() + 65, std::byte{'n'});
  EXPECT_FALSE(Hello::Parse(bytes).ok());
}

TEST(Challenge, RefusesFlagsThatAreNone) {
  const Bytes bytes = Challenge().Encode();
  EXPECT_TRUE(Challenge::Parse(Changed(bytes, 32, 1))->wants_secret);
  EXPECT_FALSE(Challenge::Parse(Changed(bytes, 32, 2)).ok());
}

TEST(Join, ComesBack) {
  Join join;
  join.rule = Rule::kGradientSync;
  join.reply = {SelectionRule::ChunkTopK(0.125), ValueCode::kBits8};
  join.incarnation = 77;
  join.layout.assign(1000, std::byte{3});
  const Result<Join> parsed = Join::Parse(join.Encode());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->rule, join.rule);
  EXPECT_EQ(parsed->reply.rule.kind, SelectionRule::Kind::kChunkTopK);
  EXPECT_EQ(parsed->reply.rule.amount, 0.125);
  EXPECT_EQ(parsed->reply.values, ValueCode::kBits8);
  EXPECT_EQ(parsed->incarnation, 77u);
  EXPECT_EQ(parsed->layout, join.layout);
}

TEST(Join, DefaultAsksForRepliesThatCanBeMade) {
  const Result<Join> parsed = Join::Parse(Join().Encode());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_TRUE(parsed->reply.Check(1000).ok());
}

TEST(Join, RefusesRulesKindsCodesAndDensitiesThatAreNone) {
  const Bytes bytes = Join().Encode();
  EXPECT_FALSE(Join::Parse(Changed(bytes, 0, kRules)).ok());
  for (uint8_t kind = 1; kind < 5; ++kind) {
    EXPECT_FALSE(Join::Parse(Changed(bytes, 1, kind)).ok());
  }
  EXPECT_FALSE(Join::Parse(Changed(bytes, 2, kValueCodes)).ok());
  for (const double density :
       {0.0, -0.0, -0.5, std::nextafter(1.0, 2.0), HUGE_VAL, -HUGE_VAL,
        std::numeric_limits<double>::quiet_NaN()}) {
    Join join;
    join.reply.rule.amount = density;
    EXPECT_FALSE(Join::Parse(join.Encode()).ok()) << density;
  }
}

TEST(Join, BelievesNoLayoutLengthThatIsNotThere) {
  Join join;
  join.layout.resize(4);
  Bytes bytes = join.Encode();
  const size_t length_at = bytes.size() - 8;
  const uint32_t huge = UINT32_MAX;
  std::memcpy(&bytes[length_at], &huge, sizeof(huge));
  EXPECT_FALSE(Join::Parse(bytes).ok());
}

TEST(Joined, ComesBack) {
  const Result<Joined> parsed = Joined::Parse(SomeJoined().Encode());
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, SomeJoined());
}

TEST(Joined, RefusesWhatAWorkerCouldNotGoOnWith) {
  const auto refused = [](const std::function<void(Joined&)>& change) {
    Joined joined = SomeJoined();
    change(joined);
    return !Joined::Parse(joined.Encode()).ok();
  };
  EXPECT_TRUE(refused([](Joined& j) { j.rank = 1u << 31; }));
  EXPECT_TRUE(refused([](Joined& j) { j.live = 0; }));
  EXPECT_TRUE(refused([](Joined& j) { j.incarnation = 0; }));
  EXPECT_TRUE(refused([](Joined& j) { j.lease_ms = 0; }));
  EXPECT_TRUE(refused([](Joined& j) { j.end_shard = j.first_shard; }));
  EXPECT_FALSE(refused([](Joined& j) { j.resumed = false; }));
  const Bytes bytes = SomeJoined().Encode();
  EXPECT_FALSE(Joined::Parse(Changed(bytes, bytes.size() - 1, 2)).ok());
}

TEST(Complaint, IsCutBetweenCharactersAndFitsAGreeting) {
  const std::string fits(Complaint::kMaxComplaintBytes - 1, 'x');
  const Bytes bytes = Complaint{WireError::kBusy, fits + "€€€"}.Encode();
  EXPECT_LE(bytes.size(), kMaxGreetingBytes);
  const Result<Complaint> parsed = Complaint::Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->code, WireError::kBusy);
  EXPECT_EQ(parsed->message, fits);
  // What is no UTF-8 is cut all the same, not away.
  const std::string rubbish(1000, '\x80');
  EXPECT_GE(Complaint::Parse(Complaint{WireError::kBusy, rubbish}.Encode())
                ->message.size(),
            Complaint::kMaxComplaintBytes - 3);
}

TEST(Complaint, CannotMoveACursor) {
  const Result<Complaint> parsed = Complaint::Parse(
      Complaint{WireError::kJob, "a\x1b[2Jb\nc\x7f\xc2\x9b d\u00fc"}.Encode());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->message, "a [2Jb c    dü");
}

TEST(Complaint, IsReadWhateverItsCode) {
  const Result<Complaint> parsed =
      Complaint::Parse(Complaint{static_cast<WireError>(999), "new"}.Encode());
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->message, "new");
  EXPECT_FALSE(MayRetry(parsed->code));
}

TEST(Complaint, RefusesASentenceThatIsTooLong) {
  Bytes bytes = Complaint{WireError::kJob, ""}.Encode();
  const uint16_t length = Complaint::kMaxComplaintBytes + 1;
  std::memcpy(&bytes[2], &length, sizeof(length));
  bytes.resize(4 + length, std::byte{'x'});
  EXPECT_FALSE(Complaint::Parse(bytes).ok());
}

TEST(MayRetry, IsForWhatMayPass) {
  for (const WireError code : {WireError::kBadFrame, WireError::kBusy,
                               WireError::kShutdown, WireError::kInternal}) {
    EXPECT_TRUE(MayRetry(code)) << static_cast<int>(code);
  }
  for (const WireError code :
       {WireError::kVersion, WireError::kSecret, WireError::kJob,
        WireError::kLayout, WireError::kRule, WireError::kFenced,
        WireError::kNotFinite, WireError::kCorrupt}) {
    EXPECT_FALSE(MayRetry(code)) << static_cast<int>(code);
  }
}

TEST(Standing, ComesBackWithWhateverFollows) {
  const Standing standing{4, 40, 160};
  const auto encoded = standing.Encode();
  Bytes bytes(encoded.begin(), encoded.end());
  bytes.push_back(std::byte{9});
  const Result<Standing> parsed = Standing::Parse(bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, standing);
  for (size_t n = 0; n < Standing::kBytes; ++n) {
    EXPECT_FALSE(Standing::Parse(std::span(bytes).first(n)).ok()) << n;
  }
  EXPECT_FALSE(Standing::Parse(Changed(bytes, 4, 1)).ok());
}

TEST(Rule, HasANameExactlyWhenItIsOne) {
  EXPECT_STREQ(NameOf(Rule::kAverage), "average");
  EXPECT_STREQ(NameOf(Rule::kGradientAsync), "gradient-async");
  EXPECT_STREQ(NameOf(Rule::kGradientSync), "gradient-sync");
  EXPECT_STREQ(NameOf(static_cast<Rule>(kRules)), "unknown");
}

}  // namespace
}  // namespace tensorlightning
