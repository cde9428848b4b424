// Some rounds of exchanges between a WorkerState and an aggregator on the CPU;
// used for every implementation of WorkerState.
#ifndef TENSORLIGHTNING_TESTS_KERNELS_WORKER_STATE_ROUNDS_H_
#define TENSORLIGHTNING_TESTS_KERNELS_WORKER_STATE_ROUNDS_H_

#include <gtest/gtest.h>

#include <vector>

#include "kernels/worker_state.h"
#include "tests/kernels/data.h"

namespace tensorlightning::testing {

// `with_memory(x, step)` brings x to where the state lives, calls
// step(pointer) and brings x back. Every view and byte is compared with plain
// WorkerStep() on the CPU.
template <typename WithMemory>
void ExchangeRounds(WorkerState& state, WithMemory with_memory) {
  const size_t n = state.entries();
  const std::vector<float> start = Make(Fill::kNormal, n, 1);
  std::vector<float> centre = Make(Fill::kNormal, n, 2);
  std::vector<float> view = start;
  std::vector<float> x = Make(Fill::kNormal, n, 3);
  std::vector<float> x_reference = x;
  std::vector<float> c_reference = start;
  std::vector<float> r_reference(n);
  ASSERT_TRUE(state.Load(start).ok());
  Workspace workspace;
  for (int round = 0; round < 4; ++round) {
    const Compression compression{SelectionRule::ChunkTopK(0.02),
                                  ValueCode::kBits4};
    const Coefficients by{0.3f, 0.3f};
    std::vector<std::byte> push(compression.MaxBytes(n));
    std::vector<std::byte> push_reference = push;
    const Result<Emitted> emitted = with_memory(x, [&](float* memory) {
      return state.Step(memory, by, compression, push);
    });
    const Result<Emitted> expected =
        WorkerStep(x_reference, c_reference, r_reference, by, compression,
                   workspace, push_reference);
    ASSERT_TRUE(emitted.ok()) << emitted.error().message;
    push.resize(emitted->bytes);
    push_reference.resize(expected->bytes);
    ASSERT_EQ(push, push_reference);
    ASSERT_EQ(BitsOf(x), BitsOf(x_reference));

    ASSERT_TRUE(ApplyPush(*Message::Parse(push, n), centre, view).ok());
    std::vector<std::byte> reply(compression.MaxBytes(n));
    const auto replied = MakeReply(centre, view, compression, workspace, reply);
    reply.resize(replied->bytes);
    const auto message = Message::Parse(reply, n);
    ASSERT_TRUE(state.ApplyReply(*message).ok());
    DecodeAdd(*message, c_reference, 1.0f);

    std::vector<float> view_of_state(n);
    std::vector<float> residual(n);
    ASSERT_TRUE(state.ReadView(view_of_state).ok());
    ASSERT_TRUE(state.ReadResidual(residual).ok());
    ASSERT_EQ(BitsOf(view_of_state), BitsOf(view)) << "round " << round;
    ASSERT_EQ(BitsOf(residual), BitsOf(r_reference));

    // Had the push been lost: it is owed again, and the view is taken anew.
    const auto lost = Message::Parse(push, n);
    ASSERT_TRUE(state.Owe(*lost).ok());
    DecodeAdd(*lost, r_reference, 1.0f);
    ASSERT_TRUE(state.Reload(centre).ok());
    c_reference = view = centre;
    ASSERT_TRUE(state.ReadView(view_of_state).ok());
    ASSERT_TRUE(state.ReadResidual(residual).ok());
    ASSERT_EQ(BitsOf(view_of_state), BitsOf(centre));
    ASSERT_EQ(BitsOf(residual), BitsOf(r_reference));
  }
}

}  // namespace tensorlightning::testing

#endif  // TENSORLIGHTNING_TESTS_KERNELS_WORKER_STATE_ROUNDS_H_
