// The handshake, both ends against each other and against impostors.
#include "comm/handshake.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace tensorlightning {
namespace {

using ::testing::AssertionFailure;
using ::testing::AssertionResult;
using ::testing::AssertionSuccess;

Secret SecretOf(std::string_view text) {
  Result<Secret> secret = Secret::FromBytes(text);
  EXPECT_TRUE(secret.ok()) << secret.error().message;
  return *secret;
}

const Secret kNone;
const Secret kOurs = SecretOf("the secret of this job");
const Secret kTheirs = SecretOf("the secret of another job");

Hello SomeHello() {
  Hello hello;
  hello.nonce = MakeNonce();
  hello.job = "mnist";
  hello.name = "host:4711";
  hello.rank = 3;
  return hello;
}

Bytes ZeroProof() { return Bytes(sizeof(Mac)); }

// Everything that was said in a handshake that went well.
struct Transcript {
  Bytes hello, challenge, proof, welcome;
};

Transcript Record(const Secret& secret) {
  AggregatorHandshake aggregator(secret, MakeNonce());
  WorkerHandshake worker(secret, SomeHello());
  Transcript said;
  said.hello = worker.HelloPayload();
  said.challenge = aggregator.Take(FrameType::kHello, said.hello)->payload;
  said.proof = **worker.Take(FrameType::kChallenge, said.challenge);
  said.welcome = aggregator.Take(FrameType::kProof, said.proof)->payload;
  return said;
}

// An error of this code that says `part`.
template <typename T>
AssertionResult Refuses(const Result<T>& result, ErrorCode code,
                        const std::string& part) {
  if (result.ok()) return AssertionFailure() << "it was taken";
  if (result.error().code != code) {
    return AssertionFailure() << "wrong code: " << result.error().message;
  }
  if (result.error().message.find(part) == std::string::npos) {
    return AssertionFailure() << result.error().message;
  }
  return AssertionSuccess();
}

class Handshake : public ::testing::TestWithParam<bool> {
 protected:
  const Secret& secret() const { return GetParam() ? kOurs : kNone; }
};

TEST_P(Handshake, EndsWhenBothAreWhoTheySay) {
  AggregatorHandshake aggregator(secret(), MakeNonce());
  const Hello hello = SomeHello();
  WorkerHandshake worker(secret(), hello);
  const auto challenge =
      aggregator.Take(FrameType::kHello, worker.HelloPayload());
  ASSERT_TRUE(challenge.ok()) << challenge.error().message;
  EXPECT_EQ(challenge->type, FrameType::kChallenge);
  EXPECT_EQ(aggregator.hello(), hello);
  EXPECT_FALSE(aggregator.done());

  const auto proof = worker.Take(FrameType::kChallenge, challenge->payload);
  ASSERT_TRUE(proof.ok()) << proof.error().message;
  ASSERT_TRUE(proof->has_value());
  EXPECT_EQ(**proof == ZeroProof(), secret().empty());
  EXPECT_FALSE(worker.done());

  const auto welcome = aggregator.Take(FrameType::kProof, **proof);
  ASSERT_TRUE(welcome.ok()) << welcome.error().message;
  EXPECT_EQ(welcome->type, FrameType::kWelcome);
  EXPECT_TRUE(aggregator.done());

  const auto end = worker.Take(FrameType::kWelcome, welcome->payload);
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_FALSE(end->has_value());
  EXPECT_TRUE(worker.done());
}

TEST_P(Handshake, AggregatorTakesFramesInOrderOnly) {
  const Transcript said = Record(secret());
  for (int type = 0; type < 256; ++type) {
    const auto frame = static_cast<FrameType>(type);
    if (frame == FrameType::kError) continue;
    AggregatorHandshake fresh(secret(), MakeNonce());
    if (frame != FrameType::kHello) {
      EXPECT_TRUE(Refuses(fresh.Take(frame, said.hello), ErrorCode::kCorrupt,
                          "hello belongs"));
      EXPECT_EQ(fresh.wire_error(), WireError::kBadFrame);
      EXPECT_FALSE(fresh.Take(FrameType::kHello, said.hello).ok())
          << "went on after an error";
    }
    AggregatorHandshake greeted(secret(), MakeNonce());
    ASSERT_TRUE(greeted.Take(FrameType::kHello, said.hello).ok());
    if (frame == FrameType::kProof) continue;
    EXPECT_TRUE(Refuses(greeted.Take(frame, said.proof), ErrorCode::kCorrupt,
                        "proof belongs"));
    EXPECT_FALSE(greeted.done());
  }
}

TEST_P(Handshake, WorkerTakesFramesInOrderOnly) {
  const Transcript said = Record(secret());
  for (int type = 0; type < 256; ++type) {
    const auto frame = static_cast<FrameType>(type);
    if (frame == FrameType::kError) continue;
    WorkerHandshake fresh(secret(), SomeHello());
    if (frame != FrameType::kChallenge) {
      EXPECT_TRUE(Refuses(fresh.Take(frame, said.challenge),
                          ErrorCode::kCorrupt, "challenge belongs"));
      EXPECT_FALSE(fresh.Take(FrameType::kChallenge, said.challenge).ok())
          << "went on after an error";
    }
    WorkerHandshake challenged(secret(), SomeHello());
    ASSERT_TRUE(challenged.Take(FrameType::kChallenge, said.challenge).ok());
    if (frame == FrameType::kWelcome) continue;
    EXPECT_TRUE(Refuses(challenged.Take(frame, said.welcome),
                        ErrorCode::kCorrupt, "welcome belongs"));
    EXPECT_FALSE(challenged.done());
  }
}

TEST_P(Handshake, NothingFollowsItsEnd) {
  AggregatorHandshake aggregator(secret(), MakeNonce());
  WorkerHandshake worker(secret(), SomeHello());
  const Bytes hello = worker.HelloPayload();
  const Bytes challenge = aggregator.Take(FrameType::kHello, hello)->payload;
  const Bytes proof = **worker.Take(FrameType::kChallenge, challenge);
  const Bytes welcome = aggregator.Take(FrameType::kProof, proof)->payload;
  ASSERT_TRUE(worker.Take(FrameType::kWelcome, welcome).ok());
  EXPECT_FALSE(aggregator.Take(FrameType::kProof, proof).ok());
  EXPECT_FALSE(worker.Take(FrameType::kWelcome, welcome).ok());
}

TEST_P(Handshake, RefusesPayloadsOfAnotherLength) {
  const Transcript said = Record(secret());
  AggregatorHandshake aggregator(secret(), MakeNonce());
  EXPECT_FALSE(aggregator.Take(FrameType::kHello, {}).ok());
  EXPECT_EQ(aggregator.wire_error(), WireError::kBadFrame);
  AggregatorHandshake greeted(secret(), MakeNonce());
  ASSERT_TRUE(greeted.Take(FrameType::kHello, said.hello).ok());
  EXPECT_FALSE(greeted.Take(FrameType::kProof, Bytes(33)).ok());
  WorkerHandshake worker(secret(), SomeHello());
  EXPECT_FALSE(worker.Take(FrameType::kChallenge, Bytes(32)).ok());
  WorkerHandshake challenged(secret(), SomeHello());
  ASSERT_TRUE(challenged.Take(FrameType::kChallenge, said.challenge).ok());
  EXPECT_FALSE(challenged.Take(FrameType::kWelcome, Bytes(31)).ok());
}

TEST_P(Handshake, WhatTheAggregatorComplainsOfIsTheWorkersError) {
  const Transcript said = Record(secret());
  const Bytes busy = Complaint{WireError::kBusy, "64 are here"}.Encode();
  const Bytes job = Complaint{WireError::kJob, "this is cifar"}.Encode();
  WorkerHandshake fresh(secret(), SomeHello());
  EXPECT_TRUE(Refuses(fresh.Take(FrameType::kError, busy), ErrorCode::kIo,
                      "the aggregator says: 64 are here"));
  EXPECT_FALSE(fresh.Take(FrameType::kChallenge, said.challenge).ok());
  WorkerHandshake challenged(secret(), SomeHello());
  ASSERT_TRUE(challenged.Take(FrameType::kChallenge, said.challenge).ok());
  EXPECT_TRUE(Refuses(challenged.Take(FrameType::kError, job),
                      ErrorCode::kRefused, "this is cifar"));
  WorkerHandshake garbled(secret(), SomeHello());
  EXPECT_TRUE(Refuses(garbled.Take(FrameType::kError, Bytes(1)),
                      ErrorCode::kCorrupt, "error"));
}

TEST_P(Handshake, WhatTheWorkerComplainsOfEndsIt) {
  const Bytes complaint = Complaint{WireError::kSecret, "none here"}.Encode();
  AggregatorHandshake aggregator(secret(), MakeNonce());
  EXPECT_TRUE(Refuses(aggregator.Take(FrameType::kError, complaint),
                      ErrorCode::kRefused, "the worker says: none here"));
  EXPECT_FALSE(aggregator.Take(FrameType::kHello, SomeHello().Encode()).ok());
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutSecret, Handshake, ::testing::Bool());

TEST(HandshakeSecret, WorkerWithoutOneIsToldToSetIt) {
  AggregatorHandshake aggregator(kOurs, MakeNonce());
  WorkerHandshake worker(kNone, SomeHello());
  const auto challenge =
      aggregator.Take(FrameType::kHello, worker.HelloPayload());
  EXPECT_TRUE(Refuses(worker.Take(FrameType::kChallenge, challenge->payload),
                      ErrorCode::kRefused, "set TL_SECRET_FILE"));
  // A worker that goes on all the same.
  EXPECT_TRUE(Refuses(aggregator.Take(FrameType::kProof, ZeroProof()),
                      ErrorCode::kRefused, "has no secret"));
  EXPECT_EQ(aggregator.wire_error(), WireError::kSecret);
  EXPECT_FALSE(aggregator.done());
}

TEST(HandshakeSecret, AggregatorWithoutOneIsNotTalkedTo) {
  AggregatorHandshake aggregator(kNone, MakeNonce());
  WorkerHandshake worker(kOurs, SomeHello());
  const auto challenge =
      aggregator.Take(FrameType::kHello, worker.HelloPayload());
  EXPECT_TRUE(Refuses(worker.Take(FrameType::kChallenge, challenge->payload),
                      ErrorCode::kRefused, "--secret-file"));
  EXPECT_TRUE(Refuses(aggregator.Take(FrameType::kProof, Record(kOurs).proof),
                      ErrorCode::kRefused, "the aggregator has none"));
  EXPECT_FALSE(aggregator.done());
}

TEST(HandshakeSecret, AnotherOneIsRefusedAtBothEnds) {
  AggregatorHandshake aggregator(kTheirs, MakeNonce());
  WorkerHandshake worker(kOurs, SomeHello());
  const Bytes challenge =
      aggregator.Take(FrameType::kHello, worker.HelloPayload())->payload;
  const Bytes proof = **worker.Take(FrameType::kChallenge, challenge);
  EXPECT_TRUE(Refuses(aggregator.Take(FrameType::kProof, proof),
                      ErrorCode::kRefused, "another secret"));
  EXPECT_EQ(aggregator.wire_error(), WireError::kSecret);
  // An aggregator that welcomes anybody, with what it has.
  const Mac welcome =
      kTheirs.Sign("TL1 aggregator",
                   std::array{std::span<const std::byte>(worker.HelloPayload()),
                              std::span<const std::byte>(challenge)});
  EXPECT_TRUE(Refuses(worker.Take(FrameType::kWelcome, welcome),
                      ErrorCode::kRefused, "could not prove"));
  EXPECT_FALSE(worker.done());
}

TEST(HandshakeSecret, ProofOfAnEarlierHandshakeIsWorthNothing) {
  const Transcript earlier = Record(kOurs);
  AggregatorHandshake aggregator(kOurs, MakeNonce());
  ASSERT_TRUE(aggregator.Take(FrameType::kHello, earlier.hello).ok());
  EXPECT_FALSE(aggregator.Take(FrameType::kProof, earlier.proof).ok());
  EXPECT_FALSE(aggregator.done());
}

TEST(HandshakeSecret, WelcomeOfAnEarlierHandshakeIsWorthNothing) {
  const Transcript earlier = Record(kOurs);
  WorkerHandshake worker(kOurs, SomeHello());
  ASSERT_TRUE(worker.Take(FrameType::kChallenge, earlier.challenge).ok());
  EXPECT_FALSE(worker.Take(FrameType::kWelcome, earlier.welcome).ok());
  EXPECT_FALSE(worker.done());
}

TEST(HandshakeSecret, ProofSentBackIsNoWelcome) {
  WorkerHandshake worker(kOurs, SomeHello());
  const Bytes challenge = Challenge{MakeNonce(), true}.Encode();
  const auto proof = worker.Take(FrameType::kChallenge, challenge);
  ASSERT_TRUE(proof.ok());
  EXPECT_FALSE(worker.Take(FrameType::kWelcome, **proof).ok());
  EXPECT_FALSE(worker.done());
}

TEST(HandshakeSecret, ProofCoversEveryBitOfHelloAndChallenge) {
  const Hello hello = SomeHello();
  const Nonce nonce = MakeNonce();
  const Bytes hello_bytes = hello.Encode();
  // What somebody in between changes, the worker's proof does not cover.
  for (size_t i = 0; i < hello_bytes.size(); ++i) {
    AggregatorHandshake aggregator(kOurs, nonce);
    WorkerHandshake worker(kOurs, hello);
    Bytes changed = hello_bytes;
    changed[i] ^= std::byte{1};
    const auto challenge = aggregator.Take(FrameType::kHello, changed);
    if (!challenge.ok()) continue;
    const auto proof = worker.Take(FrameType::kChallenge, challenge->payload);
    EXPECT_FALSE(aggregator.Take(FrameType::kProof, **proof).ok()) << i;
  }
  for (size_t i = 0; i < sizeof(Nonce); ++i) {
    AggregatorHandshake aggregator(kOurs, nonce);
    WorkerHandshake worker(kOurs, hello);
    Bytes challenge = aggregator.Take(FrameType::kHello, hello_bytes)->payload;
    challenge[i] ^= std::byte{1};
    const auto proof = worker.Take(FrameType::kChallenge, challenge);
    EXPECT_FALSE(aggregator.Take(FrameType::kProof, **proof).ok()) << i;
  }
}

TEST(MakeNonce, IsFreshEveryTime) { EXPECT_NE(MakeNonce(), MakeNonce()); }

}  // namespace
}  // namespace tensorlightning
