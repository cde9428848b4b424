#include "caffe_layers/interrupts.h"

#include <gtest/gtest.h>

#include <csignal>

namespace tensorlightning {
namespace {

volatile std::sig_atomic_t g_handled = 0;

class Interrupts : public testing::Test {
 protected:
  Interrupts() { g_handled = 0; }
  ~Interrupts() override { std::signal(SIGINT, SIG_DFL); }
};

TEST_F(Interrupts, AreSeenAndGoOnToTheProgramsOwnHandler) {
  std::signal(SIGINT, [](int) { g_handled = g_handled + 1; });
  {
    const InterruptWatch watch;
    EXPECT_FALSE(watch.pressed());
    std::raise(SIGINT);
    EXPECT_TRUE(watch.pressed());
    EXPECT_EQ(g_handled, 1);
  }
  std::raise(SIGINT);
  EXPECT_EQ(g_handled, 2) << "the handler must be back";
  const InterruptWatch next;
  EXPECT_FALSE(next.pressed()) << "that was before";
}

TEST_F(Interrupts, OfHandlersThatWantToKnowMoreAreSeenToo) {
  struct sigaction action {};
  action.sa_flags = SA_SIGINFO;
  action.sa_sigaction = [](int, siginfo_t* info, void*) {
    g_handled = info->si_signo;
  };
  ASSERT_EQ(sigaction(SIGINT, &action, nullptr), 0);
  const InterruptWatch watch;
  std::raise(SIGINT);
  EXPECT_TRUE(watch.pressed());
  EXPECT_EQ(g_handled, SIGINT);
}

TEST_F(Interrupts, ThatTheProgramIgnoresStayIgnored) {
  std::signal(SIGINT, SIG_IGN);
  const InterruptWatch watch;
  std::raise(SIGINT);
  EXPECT_FALSE(watch.pressed());
}

TEST_F(Interrupts, StillEndAProgramThatLeavesThemToTheSystem) {
  EXPECT_EXIT(
      {
        const InterruptWatch watch;
        std::raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace tensorlightning
