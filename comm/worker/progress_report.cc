#include "comm/worker/progress_report.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "comm/json.h"

namespace tensorlightning {
namespace {

constexpr std::chrono::milliseconds kBetween{500};

// Whether there is still somebody at the other end. A launcher that has gone
// must not end its workers with SIGPIPE: frameworks leave that one alone.
bool WriteToPipe(int descriptor, std::string_view text) {
  sigset_t broken;
  sigset_t before;
  sigemptyset(&broken);
  sigaddset(&broken, SIGPIPE);
  pthread_sigmask(SIG_BLOCK, &broken, &before);
  const ssize_t written = write(descriptor, text.data(), text.size());
  const bool gone =
      written < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  if (gone && !sigismember(&before, SIGPIPE)) {
    const timespec now{};
    while (sigtimedwait(&broken, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return !gone;
}

}  // namespace

ProgressReport::ProgressReport(int descriptor)
    : descriptor_(descriptor), next_(Clock::now()), last_(next_) {
  if (descriptor_ < 0) return;
  const int flags = fcntl(descriptor_, F_GETFL);
  if (flags < 0) {
    descriptor_ = -1;
    return;
  }
  fcntl(descriptor_, F_SETFL, flags | O_NONBLOCK);
  fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
}

ProgressReport ProgressReport::FromEnvironment() {
  const char* const text = std::getenv("TL_REPORT_FD");
  int descriptor = -1;
  if (text != nullptr) {
    const std::string_view all(text);
    const auto [end, error] =
        std::from_chars(all.data(), all.data() + all.size(), descriptor);
    const bool whole = error == std::errc() && end == all.data() + all.size();
    if (!whole) descriptor = -1;
  }
  return ProgressReport(descriptor);
}

bool ProgressReport::IsDue() const {
  return descriptor_ >= 0 && Clock::now() >= next_;
}

void ProgressReport::Send(const Progress& progress) {
  if (descriptor_ < 0) return;
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - last_).count();
  std::ostringstream line;
  {
    JsonObject all(line);
    all.Add("step", progress.steps);
    all.Add("done", progress.done);
    if (progress.steps > last_steps_ && seconds > 0.0) {
      all.Add("steps_per_s",
              static_cast<double>(progress.steps - last_steps_) / seconds);
    }
    if (progress.loss.has_value()) {
      // JSON has no NaN.
      if (std::isfinite(*progress.loss)) {
        all.Add("loss", *progress.loss);
      } else {
        all.Key("loss") << "null";
      }
    }
    all.Add("sent", progress.sent);
    all.Add("received", progress.received);
    all.Add("dense", progress.dense);
    all.Add("exchanges", progress.exchanges);
    all.Add("density", progress.density);
    all.Add("staleness", progress.staleness);
    all.Add("live", progress.live);
    all.Add("policy", progress.policy);
  }
  line << '\n';
  next_ = now + kBetween;
  last_ = now;
  last_steps_ = progress.steps;
  if (!WriteToPipe(descriptor_, line.str())) descriptor_ = -1;
}

}  // namespace tensorlightning
