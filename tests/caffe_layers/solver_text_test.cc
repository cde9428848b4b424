#include "caffe_layers/solver_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace tensorlightning {
namespace {

using Settings = std::vector<SolverSetting>;

TEST(SolverText, AFileWithoutTheBlockStaysAsItIs) {
  for (const std::string text :
       {"", "\n", "base_lr: 0.01\n", "# tensorlightning_param { }\n",
        "net: \"tensorlightning_param { }\"\n",
        "train_state { tensorlightning_param { } }",
        "net_param { layer { name: 'a' } }\ntype: \"SGD\"",
        "my_tensorlightning_param { }"}) {
    const Result<SolverText> cut = SolverText::Cut(text);
    ASSERT_TRUE(cut.ok()) << text;
    EXPECT_EQ(cut->plain, text);
    EXPECT_FALSE(cut->settings.has_value()) << text;
  }
}

TEST(SolverText, TheBlockIsCutOutAndAllElseStaysInItsPlace) {
  const std::string text =
      "base_lr: 0.01 # } tensorlightning_param {\n"
      "tensorlightning_param {\n"
      "  period: 20, density: 2e-2;  # of all\n"
      "  policy: \"lo\" 'cal'\n"
      "} type: 'Adam'\n";
  const Result<SolverText> cut = SolverText::Cut(text);
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  EXPECT_EQ(*cut->settings, (Settings{{"period", "20", 3},
                                      {"density", "2e-2", 3},
                                      {"policy", "local", 4}}));
  EXPECT_EQ(cut->plain.size(), text.size());
  EXPECT_EQ(std::count(cut->plain.begin(), cut->plain.end(), '\n'), 5);
  EXPECT_EQ(cut->plain.substr(0, 41), text.substr(0, 41));
  EXPECT_EQ(cut->plain.find("period"), std::string::npos);
  EXPECT_EQ(cut->plain.substr(cut->plain.size() - 14), " type: 'Adam'\n");
}

TEST(SolverText, AllWaysToWriteABlock) {
  for (const std::string text :
       {"tensorlightning_param{}", "tensorlightning_param: {}",
        "tensorlightning_param < >", "tensorlightning_param { };",
        "tensorlightning_param #\n{ # {\n}", "tensorlightning_param {} ,"}) {
    const Result<SolverText> cut = SolverText::Cut(text);
    ASSERT_TRUE(cut.ok()) << text << ": " << cut.error().message;
    EXPECT_TRUE(cut->settings.has_value() && cut->settings->empty()) << text;
    EXPECT_EQ(cut->plain.find_first_not_of(" \n"), std::string::npos) << text;
  }
}

TEST(SolverText, StringsMayHoldQuotesAndBrackets) {
  const Result<SolverText> cut = SolverText::Cut(
      R"(net: "a\"{" tensorlightning_param { job: "it's \"} \\ mine" })");
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(*cut->settings, (Settings{{"job", R"(it's "} \ mine)", 1}}));
}

TEST(SolverText, ErrorsNameTheLine) {
  const struct {
    const char* text;
    const char* error;
  } cases[] = {
      {"\ntensorlightning_param {", "2: tensorlightning_param is not closed"},
      {"tensorlightning_param { }\n\ntensorlightning_param { }",
       "3: tensorlightning_param is there twice"},
      {"tensorlightning_param: 3", "1: tensorlightning_param is a block"},
      {"tensorlightning_param {\n period 3 }", "2: period has no value"},
      {"tensorlightning_param {\n period: }", "2: period has no value"},
      {"tensorlightning_param { period: { } }", "1: period has no value"},
      {"tensorlightning_param {\n\n : 3 }", "3: ':' where a setting's name"},
      {"tensorlightning_param { a: 1\n a: 2 }",
       "2: a was given in line 1 already"},
      {"net: \"a\nb\"", "1: a string that does not end on its line"},
      {"tensorlightning_param { job: 'x", "1: a string that does not end"},
  };
  for (const auto& [text, error] : cases) {
    const Result<SolverText> cut = SolverText::Cut(text);
    ASSERT_FALSE(cut.ok()) << text;
    EXPECT_EQ(cut.error().message.find(error), 0u)
        << text << ": " << cut.error().message;
  }
}

}  // namespace
}  // namespace tensorlightning
