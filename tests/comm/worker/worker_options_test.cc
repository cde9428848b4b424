#include "comm/worker/worker_options.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace tensorlightning {
namespace {

std::string ErrorOf(const std::string& text) {
  const Result<WorkerOptions> options = WorkerOptions::Parse(text);
  return options.ok() ? "" : options.error().message;
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    ::setenv(name, value, 1);
  }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

TEST(WorkerOptions, ReadsSettingsByName) {
  const Result<WorkerOptions> options = WorkerOptions::Parse(
      "policy=local  period=20 density=0.02 bits=8 when=adaptive rank=3");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->policy, "local");
  EXPECT_EQ(options->period, 20u);
  EXPECT_DOUBLE_EQ(options->density, 0.02);
  EXPECT_EQ(options->bits, 8);
  EXPECT_EQ(options->when, "adaptive");
  EXPECT_EQ(options->rank, 3);
}

TEST(WorkerOptions, WithNewlinesValuesMayHaveBlanks) {
  const Result<WorkerOptions> options =
      WorkerOptions::Parse("period=7\nsecret_file=/a folder/secret\n");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->period, 7u);
  EXPECT_EQ(options->secret_file, "/a folder/secret");
}

TEST(WorkerOptions, WhatIsGivenWinsOverTheEnvironment) {
  const Variable period("TL_PERIOD", "5");
  const Variable density("TL_DENSITY", "0.5");
  const Result<WorkerOptions> options = WorkerOptions::Parse("period=6");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->period, 6u);
  EXPECT_DOUBLE_EQ(options->density, 0.5);
}

TEST(WorkerOptions, WorkersThatEndApartAverageWeights) {
  EXPECT_EQ(ErrorOf("ending=apart policy=local"), "");
  EXPECT_NE(ErrorOf("ending=never").find("together or apart"),
            std::string::npos);
  EXPECT_NE(ErrorOf("ending=apart policy=gradient").find("average weights"),
            std::string::npos);
}

TEST(WorkerOptions, ErrorsNameTheSettingAndWhatIsAllowed) {
  EXPECT_NE(ErrorOf("perid=3").find("there is no setting 'perid'"),
            std::string::npos);
  EXPECT_EQ(ErrorOf("period"),
            "'period' is no setting: they are written name=value");
  EXPECT_EQ(ErrorOf("period=0"), "period=0: it is counted in steps, from 1 on");
  EXPECT_NE(ErrorOf("period=-3"), "");
  EXPECT_NE(ErrorOf("period=3x"), "");
  EXPECT_NE(ErrorOf("density=0"), "");
  EXPECT_NE(ErrorOf("density=nan"), "");
  EXPECT_NE(ErrorOf("density=1.01"), "");
  EXPECT_EQ(ErrorOf("bits=5"), "bits=5: a value has 32, 16, 8, 4 or 2 bits");
  EXPECT_NE(ErrorOf("policy=elastc"), "");
  EXPECT_NE(ErrorOf("policy=gossip").find("does not exist yet"),
            std::string::npos);
  EXPECT_EQ(ErrorOf("when=often"), "when=often: it is period or adaptive");
  EXPECT_NE(ErrorOf("momentum=1"), "");
  EXPECT_NE(ErrorOf("patience=0"), "");
  EXPECT_NE(ErrorOf("size=0"), "");
  EXPECT_NE(ErrorOf("rank=-2"), "");
  const Variable period("TL_PERIOD", "often");
  EXPECT_NE(ErrorOf("").find("TL_PERIOD"), std::string::npos);
}

TEST(WorkerOptions, DenseLeavesNothingOut) {
  const Result<WorkerOptions> options =
      WorkerOptions::Parse("policy=dense density=0.01 beta=0.5");
  ASSERT_TRUE(options.ok());
  const Result<Policy> policy = options->MakePolicy();
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ(policy->up.rule.MaxKept(1000), 1000u);
  EXPECT_EQ(policy->up.values, ValueCode::kFloat32);
  EXPECT_DOUBLE_EQ(policy->push, 0.5);
}

}  // namespace
}  // namespace tensorlightning
