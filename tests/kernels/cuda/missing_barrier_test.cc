// Removing one __syncthreads from the real kernels is noticed under TSan, and
// the complete ones are clean.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "kernels/cuda/emulator/emulator.h"

namespace {

struct Outcome {
  int exit_code;
  std::string output;
};

Outcome RunChild(const std::string& program) {
  const std::string log = ::testing::TempDir() + program + ".log";
  const int status = std::system(  // NOLINT: a child is the point.
      ("tests/kernels/cuda/" + program + " >" + log + " 2>&1").c_str());
  std::ifstream file(log);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          {std::istreambuf_iterator<char>(file), {}}};
}

TEST(MissingBarrier, CompleteKernelsAreClean) {
  const Outcome outcome = RunChild("with_barrier");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
}

TEST(MissingBarrier, IsReportedAsARace) {
  const Outcome outcome = RunChild("without_barrier");
  if (!tensorlightning::cuda::emulator::RaceDetection()) {
    std::cout << "NOT CHECKED in this build: races are seen under TSan "
                 "(make tsan); the program ended with "
              << outcome.exit_code << "\n";
    EXPECT_EQ(outcome.output.find("data race"), std::string::npos);
    return;
  }
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_NE(outcome.output.find("data race"), std::string::npos)
      << outcome.output;
  EXPECT_NE(outcome.output.find("BlockScan"), std::string::npos)
      << "the report should name the function that lost its barrier:\n"
      << outcome.output;
}

}  // namespace
