// Who talks to whom, proven: the two ends of the handshake as state machines
// without any I/O.
//
//   worker                               aggregator
//   Hello  {nonce, job, rank, ...}  -->
//                                   <--  Challenge {nonce}
//   Proof  {HMAC(secret, both)}     -->
//                                   <--  Welcome {HMAC(secret, both)}
//
// The proofs are HMAC-SHA256 of a label ("TL1 worker" or "TL1 aggregator") and
// the payloads of Hello and Challenge: each covers a fresh nonce of the other
// end, so that a recorded handshake is worth nothing. Without a secret the
// proofs are zeros. A worker that has a secret does not talk to an aggregator
// that has none, nor the reverse.
//
// It authenticates the beginning of a connection. Against somebody who can
// change what is on the wire afterwards, use TLS.
#ifndef TENSORLIGHTNING_COMM_HANDSHAKE_H_
#define TENSORLIGHTNING_COMM_HANDSHAKE_H_

#include <optional>
#include <span>
#include <string>

#include "comm/frame.h"
#include "comm/messages.h"
#include "comm/secret.h"
#include "kernels/result.h"

namespace tensorlightning {

// Fresh random bytes from the system.
Nonce MakeNonce();

class AggregatorHandshake {
 public:
  // The secret must outlive the handshake. `nonce`: MakeNonce(), but in tests.
  AggregatorHandshake(const Secret& secret, Nonce nonce);

  // Takes the next frame from the worker, and gives the payload of the answer:
  // Challenge for Hello, Welcome for Proof. An error ends it: say it to the
  // worker (kError with wire_error()) and close.
  struct Answer {
    FrameType type;
    Bytes payload;
  };
  Result<Answer> Take(FrameType type, std::span<const std::byte> payload);

  bool done() const { return state_ == State::kDone; }
  // Valid once Hello was taken; to be believed only when done().
  const Hello& hello() const { return hello_; }
  WireError wire_error() const { return wire_error_; }

 private:
  enum class State { kWantsHello, kWantsProof, kDone, kFailed };

  Error Fail(WireError code, std::string message);

  const Secret& secret_;
  Challenge challenge_;
  State state_ = State::kWantsHello;
  Hello hello_;
  Bytes hello_bytes_;
  WireError wire_error_ = WireError::kBadFrame;
};

class WorkerHandshake {
 public:
  WorkerHandshake(const Secret& secret, const Hello& hello);

  // The first thing to send.
  Bytes HelloPayload() const { return hello_bytes_; }

  // Takes the next frame from the aggregator. Proof for Challenge; nothing for
  // Welcome, after which done(). kRefused: it will never work like this (the
  // error says what to do); a kError frame becomes kRefused or, where trying
  // again may help, kIo.
  Result<std::optional<Bytes>> Take(FrameType type,
                                    std::span<const std::byte> payload);

  bool done() const { return state_ == State::kDone; }

 private:
  enum class State { kWantsChallenge, kWantsWelcome, kDone, kFailed };

  const Secret& secret_;
  Bytes hello_bytes_;
  Bytes challenge_bytes_;
  State state_ = State::kWantsChallenge;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_HANDSHAKE_H_
