#include "comm/handshake.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace tensorlightning {
namespace {

constexpr std::string_view kWorkerLabel = "TL1 worker";
constexpr std::string_view kAggregatorLabel = "TL1 aggregator";

constexpr const char* kGiveBothTheSame =
    "give both the same file (worker: TL_SECRET_FILE; aggregator: "
    "--secret-file)";

// Hello's length varies and Challenge's does not: no other two payloads give
// the same bytes.
Mac ProofOf(const Secret& secret, std::string_view label,
            std::span<const std::byte> hello,
            std::span<const std::byte> challenge) {
  return secret.Sign(label, std::array{hello, challenge});
}

std::optional<Mac> MacOf(std::span<const std::byte> payload) {
  Mac mac;
  if (payload.size() != mac.size()) return std::nullopt;
  std::copy(payload.begin(), payload.end(), mac.begin());
  return mac;
}

Bytes BytesOf(std::span<const std::byte> bytes) {
  return {bytes.begin(), bytes.end()};
}

std::string OutOfOrder(FrameType type, const char* wanted) {
  return std::string("handshake: a frame '") + NameOf(type) + "' came where " +
         wanted + " belongs";
}

}  // namespace

Nonce MakeNonce() {
  Nonce nonce;
  // Up to 256 bytes come whole or not at all.
  if (getrandom(nonce.data(), nonce.size(), 0) !=
      static_cast<ssize_t>(nonce.size())) {
    // There is nothing to go on with: a predictable nonce would be a hole.
    std::fputs("tensorlightning: the system has no random bytes\n", stderr);
    std::abort();
  }
  return nonce;
}

AggregatorHandshake::AggregatorHandshake(const Secret& secret, Nonce nonce)
    : secret_(secret), challenge_{nonce, !secret.empty()} {}

Error AggregatorHandshake::Fail(WireError code, std::string message) {
  // What went wrong first is what the worker should hear.
  if (state_ != State::kFailed) wire_error_ = code;
  state_ = State::kFailed;
  const bool said_no = code != WireError::kBadFrame;
  return {said_no ? ErrorCode::kRefused : ErrorCode::kCorrupt,
          std::move(message)};
}

Result<AggregatorHandshake::Answer> AggregatorHandshake::Take(
    FrameType type, std::span<const std::byte> payload) {
  if (type == FrameType::kError && state_ != State::kFailed) {
    const Result<Complaint> complaint = Complaint::Parse(payload);
    if (!complaint.ok()) {
      return Fail(WireError::kBadFrame, complaint.error().message);
    }
    return Fail(complaint->code, "the worker says: " + complaint->message);
  }
  switch (state_) {
    case State::kWantsHello: {
      if (type != FrameType::kHello) {
        return Fail(WireError::kBadFrame, OutOfOrder(type, "hello"));
      }
      Result<Hello> hello = Hello::Parse(payload);
      if (!hello.ok()) {
        return Fail(WireError::kBadFrame, hello.error().message);
      }
      hello_ = std::move(*hello);
      hello_bytes_ = BytesOf(payload);
      state_ = State::kWantsProof;
      return Answer{FrameType::kChallenge, challenge_.Encode()};
    }
    case State::kWantsProof: {
      if (type != FrameType::kProof) {
        return Fail(WireError::kBadFrame, OutOfOrder(type, "proof"));
      }
      const std::optional<Mac> proof = MacOf(payload);
      if (!proof) {
        return Fail(WireError::kBadFrame, "proof: is not 32 bytes long");
      }
      const Bytes challenge = challenge_.Encode();
      const std::string who = "worker '" + hello_.name + "' ";
      if (!SameMac(*proof,
                   ProofOf(secret_, kWorkerLabel, hello_bytes_, challenge))) {
        if (secret_.empty()) {
          return Fail(WireError::kSecret,
                      who +
                          "has a secret and the aggregator has none: start "
                          "the aggregator with --secret-file, or the worker "
                          "without TL_SECRET_FILE and TL_SECRET");
        }
        if (SameMac(*proof, Mac{})) {
          return Fail(WireError::kSecret,
                      who +
                          "has no secret and the aggregator wants one: set "
                          "TL_SECRET_FILE for the worker to a copy of the "
                          "aggregator's --secret-file");
        }
        return Fail(WireError::kSecret,
                    who + "has another secret than the aggregator: " +
                        kGiveBothTheSame);
      }
      state_ = State::kDone;
      return Answer{
          FrameType::kWelcome,
          BytesOf(ProofOf(secret_, kAggregatorLabel, hello_bytes_, challenge))};
    }
    case State::kDone:
    case State::kFailed:
      break;
  }
  return Fail(WireError::kBadFrame, OutOfOrder(type, "no frame of it"));
}

WorkerHandshake::WorkerHandshake(const Secret& secret, const Hello& hello)
    : secret_(secret), hello_bytes_(hello.Encode()) {}

Result<std::optional<Bytes>> WorkerHandshake::Take(
    FrameType type, std::span<const std::byte> payload) {
  const State before = std::exchange(state_, State::kFailed);
  const auto refused = [](std::string message) {
    return Error{ErrorCode::kRefused, std::move(message)};
  };
  const auto corrupt = [](std::string message) {
    return Error{ErrorCode::kCorrupt, std::move(message)};
  };
  if (type == FrameType::kError) {
    const Result<Complaint> complaint = Complaint::Parse(payload);
    if (!complaint.ok()) return complaint.error();
    return Error{
        MayRetry(complaint->code) ? ErrorCode::kIo : ErrorCode::kRefused,
        "the aggregator says: " + complaint->message};
  }
  switch (before) {
    case State::kWantsChallenge: {
      if (type != FrameType::kChallenge) {
        return corrupt(OutOfOrder(type, "challenge"));
      }
      const Result<Challenge> challenge = Challenge::Parse(payload);
      if (!challenge.ok()) return challenge.error();
      if (challenge->wants_secret && secret_.empty()) {
        return refused(
            "the aggregator wants a secret and this worker has none: set "
            "TL_SECRET_FILE to a copy of the aggregator's --secret-file");
      }
      if (!challenge->wants_secret && !secret_.empty()) {
        return refused(
            "this worker has a secret and the aggregator has none: start the "
            "aggregator with --secret-file, or this worker without "
            "TL_SECRET_FILE and TL_SECRET");
      }
      challenge_bytes_ = BytesOf(payload);
      state_ = State::kWantsWelcome;
      return std::optional(BytesOf(
          ProofOf(secret_, kWorkerLabel, hello_bytes_, challenge_bytes_)));
    }
    case State::kWantsWelcome: {
      if (type != FrameType::kWelcome) {
        return corrupt(OutOfOrder(type, "welcome"));
      }
      const std::optional<Mac> proof = MacOf(payload);
      if (!proof) return corrupt("welcome: is not 32 bytes long");
      if (!SameMac(*proof, ProofOf(secret_, kAggregatorLabel, hello_bytes_,
                                   challenge_bytes_))) {
        return refused(
            std::string("the aggregator could not prove that it has this "
                        "worker's secret: ") +
            kGiveBothTheSame + ", and make sure that the address is right");
      }
      state_ = State::kDone;
      return std::optional<Bytes>();
    }
    case State::kDone:
    case State::kFailed:
      break;
  }
  return corrupt(OutOfOrder(type, "no frame of it"));
}

}  // namespace tensorlightning
