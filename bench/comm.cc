#include "bench/comm.h"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string_view>

namespace tensorlightning::bench {

Status Parse(Flags& flags, Arguments arguments) {
  const Result<Flags::Outcome> parsed = flags.Parse(arguments);
  if (!parsed.ok()) return parsed.error();
  if (*parsed == Flags::Outcome::kHelp) {
    std::cout << flags.Help();
    std::exit(0);
  }
  return Done{};
}

}  // namespace tensorlightning::bench

namespace {

using tensorlightning::Status;
using tensorlightning::bench::Arguments;

struct Part {
  std::string_view name;
  Status (*run)(Arguments);
};

namespace bench = tensorlightning::bench;

constexpr std::array kParts = {
    Part{"bulk-receive", bench::ReceiveBulk},
    Part{"bulk-send", bench::SendBulk},
    Part{"round-trip", bench::RoundTrip},
    Part{"apply", bench::Apply},
    Part{"overlap", bench::Overlap},
};

int Main(Arguments arguments) {
  const std::string_view name = arguments.empty() ? "" : arguments.front();
#ifdef NDEBUG
  constexpr bool kOptimised = true;
#else
  constexpr bool kOptimised = false;
#endif
  if (name == "about") {
    std::cout << R"({"optimised": )" << (kOptimised ? "true" : "false")
              << "}\n";
    return 0;
  }
  for (const Part& part : kParts) {
    if (part.name != name) continue;
    std::signal(SIGPIPE, SIG_IGN);
    const Status status = part.run(arguments.subspan(1));
    if (status.ok()) return 0;
    std::cerr << "bench/comm " << name << ": " << status.error().message
              << "\n";
    return status.error().code == tensorlightning::ErrorCode::kInvalidArgument
               ? 2
               : 1;
  }
  std::cerr << "bench/comm: name a part: about";
  for (const Part& part : kParts) std::cerr << ", " << part.name;
  std::cerr << "\n";
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Main({argv + 1, static_cast<size_t>(argc - 1)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench/comm: %s\n", error.what());
    return 1;
  }
}
