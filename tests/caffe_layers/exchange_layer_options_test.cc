#include "caffe_layers/exchange_layer_options.h"

#include <gtest/gtest.h>

#include <string>

namespace tensorlightning {
namespace {

TEST(ExchangeLayerOptions, AreTheSolversAndSteps) {
  const auto options =
      ExchangeLayerOptions::Parse("  period=7\n steps=100\tmodel=own ");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->exchange.worker.period, 7u);
  EXPECT_TRUE(options->exchange.own);
  EXPECT_EQ(options->steps, 100u);
}

TEST(ExchangeLayerOptions, HaveDefaults) {
  const auto options = ExchangeLayerOptions::Parse("");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->exchange.worker.policy, "elastic");
  EXPECT_FALSE(options->steps.has_value());
}

TEST(ExchangeLayerOptions, RefuseWhatALayerCannotDo) {
  for (const char* wrong :
       {"policy=gradient", "policy=gradient-async", "steps=0",
        "steps=", "steps=1x", "steps=-1", "perod=1", "period"}) {
    EXPECT_FALSE(ExchangeLayerOptions::Parse(wrong).ok()) << wrong;
  }
  EXPECT_NE(ExchangeLayerOptions::Parse("policy=gradient")
                .error()
                .message.find("averaged by the solver"),
            std::string::npos);
}

}  // namespace
}  // namespace tensorlightning
