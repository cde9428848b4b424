// Two ends of a handshake and somebody in between who decides what each hears:
// made-up frames, true ones, true ones changed, sent back, or of an earlier
// handshake. Neither end is ever done unless it was proven the secret.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>

#include "comm/handshake.h"

namespace tensorlightning {
namespace {

void Require(bool holds) {
  if (!holds) std::abort();
}

Nonce NonceOf(int fill) {
  Nonce nonce;
  nonce.fill(static_cast<std::byte>(fill));
  return nonce;
}

Hello HelloOf(int fill) {
  Hello hello;
  hello.nonce = NonceOf(fill);
  hello.job = "job";
  hello.name = "host:1";
  return hello;
}

// None, ours, or another one.
Secret SecretOf(unsigned which) {
  if (which % 3 == 0) return {};
  return *Secret::FromBytes(which % 3 == 1 ? "the secret of this job"
                                           : "the secret of another job");
}

// What was said in an earlier handshake with our secret.
const std::array<Bytes, 4>& Earlier() {
  static const std::array<Bytes, 4> said = [] {
    const Secret secret = SecretOf(1);
    AggregatorHandshake aggregator(secret, NonceOf(1));
    WorkerHandshake worker(secret, HelloOf(2));
    const Bytes hello = worker.HelloPayload();
    const Bytes challenge = aggregator.Take(FrameType::kHello, hello)->payload;
    const Bytes proof = **worker.Take(FrameType::kChallenge, challenge);
    const Bytes welcome = aggregator.Take(FrameType::kProof, proof)->payload;
    return std::array{hello, challenge, proof, welcome};
  }();
  return said;
}

class Input {
 public:
  explicit Input(std::span<const uint8_t> bytes) : rest_(bytes) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  Bytes Some(size_t n) {
    n = std::min(n, rest_.size());
    const auto taken = std::as_bytes(rest_.first(n));
    rest_ = rest_.subspan(n);
    return {taken.begin(), taken.end()};
  }

 private:
  std::span<const uint8_t> rest_;
};

// Both ends, and what each has said and heard.
class Stage {
 public:
  explicit Stage(uint8_t secrets)
      : workers_secret_(SecretOf(secrets & 15)),
        aggregators_secret_(SecretOf(secrets >> 4)),
        same_((secrets & 15) % 3 == (secrets >> 4) % 3),
        worker_(workers_secret_, HelloOf(3)),
        aggregator_(aggregators_secret_, NonceOf(4)),
        by_worker_(worker_.HelloPayload()) {}

  const Bytes& by_worker() const { return by_worker_; }
  const Bytes& by_aggregator() const { return by_aggregator_; }

  void TellWorker(FrameType type, const Bytes& payload) {
    const bool was_done = worker_.done();
    const Result<std::optional<Bytes>> answer = worker_.Take(type, payload);
    if (!answer.ok()) {
      Require(!answer.error().message.empty() && !worker_.done());
      return;
    }
    Require(!was_done && worker_.done() == !answer->has_value());
    if (answer->has_value()) {
      proof_ = by_worker_ = **answer;
      return;
    }
    Require(type == FrameType::kWelcome);
    // Without a secret, anybody may be the aggregator.
    Require(workers_secret_.empty() ? payload == Bytes(sizeof(Mac))
                                    : same_ && payload == welcome_);
  }

  void TellAggregator(FrameType type, const Bytes& payload) {
    const bool was_done = aggregator_.done();
    Result<AggregatorHandshake::Answer> answer =
        aggregator_.Take(type, payload);
    if (!answer.ok()) {
      Require(!answer.error().message.empty() && !aggregator_.done());
      return;
    }
    Require(!was_done);
    Require(aggregator_.done() == (answer->type == FrameType::kWelcome));
    by_aggregator_ = answer->payload;
    if (!aggregator_.done()) {
      heard_hello_ = payload;
      return;
    }
    Require(type == FrameType::kProof);
    if (aggregators_secret_.empty()) {
      Require(payload == Bytes(sizeof(Mac)));
      return;
    }
    // Only the worker could have made it, for what was said here.
    Require(same_ && payload == proof_);
    Require(heard_hello_ == worker_.HelloPayload());
    welcome_ = answer->payload;
  }

 private:
  Secret workers_secret_;
  Secret aggregators_secret_;
  bool same_;
  WorkerHandshake worker_;
  AggregatorHandshake aggregator_;
  Bytes by_worker_;  // The last it said.
  Bytes by_aggregator_;
  std::optional<Bytes> proof_;    // Of the worker, if it has made one.
  std::optional<Bytes> welcome_;  // Of an aggregator with a secret.
  Bytes heard_hello_;
};

Bytes PayloadOf(uint8_t source, bool to_worker, const Stage& stage,
                Input& input) {
  switch (source) {
    case 0:
      return input.Some(input.Byte());
    case 1:
      return to_worker ? stage.by_aggregator() : stage.by_worker();
    case 2:
      return to_worker ? stage.by_worker() : stage.by_aggregator();
    case 3:
      return Bytes(sizeof(Mac));
    default:
      return Earlier()[source - 4];
  }
}

}  // namespace

// A byte for the secrets; then steps: a byte that says to whom (1 bit), what (3
// bits), whether changed (1 bit), and the frame's type: 0 to 6 is hello to
// error, 7 another byte.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input({data, size});
  Stage stage(input.Byte());
  while (!input.empty()) {
    const uint8_t step = input.Byte();
    const bool to_worker = (step & 1) != 0;
    Bytes payload = PayloadOf(step >> 1 & 7, to_worker, stage, input);
    if ((step >> 4 & 1) != 0 && !payload.empty()) {
      const size_t where = input.Byte() % payload.size();
      payload[where] ^= static_cast<std::byte>(input.Byte());
    }
    const uint8_t choice = step >> 5;
    const auto type =
        static_cast<FrameType>(choice < 7 ? choice + 1 : input.Byte());
    if (to_worker) {
      stage.TellWorker(type, payload);
    } else {
      stage.TellAggregator(type, payload);
    }
  }
  return 0;
}

}  // namespace tensorlightning
