#include "caffe_layers/solver_options.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tensorlightning {
namespace {

using Stages = std::vector<std::string>;

TEST(SolverOptions, StagesOfOthersAreNotOurs) {
  for (const Stages& stages : {Stages{}, Stages{"deploy", "tensorlightningly",
                                                "my.tensorlightning"}}) {
    const auto options = SolverOptions::FromStages(stages);
    ASSERT_TRUE(options.ok());
    EXPECT_FALSE(options->has_value());
  }
}

TEST(SolverOptions, WithoutSettingsAllIsAsEverywhere) {
  const auto options = SolverOptions::FromStages(Stages{"tensorlightning"});
  ASSERT_TRUE(options.ok() && options->has_value());
  const WorkerOptions defaults;
  EXPECT_EQ((*options)->worker.policy, defaults.policy);
  EXPECT_EQ((*options)->worker.period, defaults.period);
  EXPECT_EQ((*options)->worker.density, defaults.density);
  EXPECT_FALSE((*options)->own);
}

TEST(SolverOptions, ABlockBecomesStagesAndThoseBecomeOptions) {
  const std::vector<SolverSetting> settings = {{"period", "7", 1},
                                               {"patience", "5", 2},
                                               {"job", "with a blank", 3},
                                               {"model", "own", 4}};
  const auto stages = ToStages(settings);
  ASSERT_TRUE(stages.ok()) << stages.error().message;
  EXPECT_EQ(stages->front(), "tensorlightning");
  EXPECT_EQ((*stages)[1], "tensorlightning.period=7");
  const auto options = SolverOptions::FromStages(*stages);
  ASSERT_TRUE(options.ok() && options->has_value());
  EXPECT_EQ((*options)->worker.period, 7u);
  EXPECT_EQ((*options)->worker.patience_s, 5.0);
  EXPECT_EQ((*options)->worker.job, "with a blank");
  EXPECT_TRUE((*options)->own);
}

TEST(SolverOptions, ErrorsNameTheLineOfTheSettingThatIsWrong) {
  const struct {
    SolverSetting setting;
    const char* error;
  } cases[] = {
      {{"density", "2", 9}, "9: density=2"},
      {{"density", "much", 9}, "9: density=much: this is no number"},
      {{"perod", "2", 9}, "9: there is no setting 'perod'; there are"},
      {{"policy", "gossip", 9}, "9: policy=gossip does not exist yet"},
      {{"model", "both", 9}, "9: model=both: it is centre or own"},
  };
  for (const auto& [setting, error] : cases) {
    const auto stages =
        ToStages(std::vector<SolverSetting>{{"period", "3", 8}, setting});
    ASSERT_FALSE(stages.ok()) << setting.name;
    EXPECT_EQ(stages.error().message.find(error), 0u) << stages.error().message;
  }
}

}  // namespace
}  // namespace tensorlightning
