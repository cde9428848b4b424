#include "caffe_layers/interrupts.h"

#include <atomic>

namespace tensorlightning {
namespace {

// Signal handlers have nothing but what is global.
std::atomic<bool> g_pressed{false};
struct sigaction g_program {};

void OnInterrupt(int signal, siginfo_t* info, void* context) {
  g_pressed = true;
  if ((g_program.sa_flags & SA_SIGINFO) != 0) {
    g_program.sa_sigaction(signal, info, context);
  } else {
    g_program.sa_handler(signal);
  }
}

bool IsHandled(const struct sigaction& action) {
  return (action.sa_flags & SA_SIGINFO) != 0 ||
         (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
}

}  // namespace

InterruptWatch::InterruptWatch() {
  g_pressed = false;
  if (sigaction(SIGINT, nullptr, &g_program) != 0 || !IsHandled(g_program)) {
    return;
  }
  struct sigaction ours = g_program;
  ours.sa_flags |= SA_SIGINFO;
  ours.sa_sigaction = OnInterrupt;
  watching_ = sigaction(SIGINT, &ours, nullptr) == 0;
}

InterruptWatch::~InterruptWatch() {
  if (watching_) sigaction(SIGINT, &g_program, nullptr);
}

bool InterruptWatch::pressed() const { return g_pressed; }

}  // namespace tensorlightning
