#include "comm/flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensorlightning {
namespace {

using std::chrono::milliseconds;

// One flag of each kind.
struct Tool {
  std::string listen = "0.0.0.0:7070";
  bool quiet = false;
  bool checksums = true;
  int64_t workers = 4;
  double density = 0.01;
  milliseconds timeout{30000};
  std::string format = "text";
  std::vector<std::string> peers = {"default"};
  Flags flags{"tl-tool", "Does what tests need."};

  Tool() {
    flags.Add("listen", &listen, "host:port|unix:/path", "where to listen");
    flags.Add("quiet", &quiet, "say less");
    flags.Add("checksums", &checksums, "check every frame");
    flags.Add("workers", &workers, "N", "how many to wait for");
    flags.Add("density", &density, "SHARE", "what part is sent");
    flags.Add("timeout", &timeout, "SECONDS", "when to give up");
    flags.AddChoice("format", &format, {"text", "json"}, "of the log");
    flags.Add("peer", &peers, "HOST", "whom to call");
  }

  Result<Flags::Outcome> Parse(const std::vector<const char*>& arguments) {
    return flags.Parse(arguments);
  }

  // Of arguments that must be refused.
  std::string Refusal(const std::vector<const char*>& arguments) {
    const auto parsed = Parse(arguments);
    EXPECT_FALSE(parsed.ok());
    return parsed.ok() ? "" : parsed.error().message;
  }
};

void ExpectRuns(Tool& tool, const std::vector<const char*>& arguments) {
  const auto parsed = tool.Parse(arguments);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, Flags::Outcome::kRun);
}

void ExpectSays(const std::string& message, std::string_view part) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

std::string WriteConfig(const std::string& text) {
  const auto* const test = ::testing::UnitTest::GetInstance();
  std::string path =
      ::testing::TempDir() + "/" + test->current_test_info()->name() + ".conf";
  std::ofstream(path) << text;
  return path;
}

TEST(Flags, LeaveDefaultsAloneWhenNothingIsGiven) {
  Tool tool;
  ExpectRuns(tool, {});
  EXPECT_EQ(tool.listen, "0.0.0.0:7070");
  EXPECT_FALSE(tool.quiet);
  EXPECT_TRUE(tool.checksums);
  EXPECT_EQ(tool.workers, 4);
  EXPECT_EQ(tool.density, 0.01);
  EXPECT_EQ(tool.timeout, milliseconds(30000));
  EXPECT_EQ(tool.format, "text");
  EXPECT_EQ(tool.peers, std::vector<std::string>{"default"});
}

TEST(Flags, TakeValuesAfterAnEqualsSign) {
  Tool tool;
  ExpectRuns(tool, {"--listen=unix:/a=b", "--quiet", "--workers=-7",
                    "--density=2.5e-3", "--timeout=250ms", "--format=json",
                    "--peer=a", "--peer=b"});
  EXPECT_EQ(tool.listen, "unix:/a=b");
  EXPECT_TRUE(tool.quiet);
  EXPECT_EQ(tool.workers, -7);
  EXPECT_EQ(tool.density, 0.0025);
  EXPECT_EQ(tool.timeout, milliseconds(250));
  EXPECT_EQ(tool.format, "json");
  EXPECT_EQ(tool.peers, (std::vector<std::string>{"a", "b"}));
}

TEST(Flags, TakeValuesAsTheNextArgument) {
  Tool tool;
  ExpectRuns(tool, {"--listen", "host:1", "--workers", "-3", "--peer", "a"});
  EXPECT_EQ(tool.listen, "host:1");
  EXPECT_EQ(tool.workers, -3);
  EXPECT_EQ(tool.peers, std::vector<std::string>{"a"});
}

TEST(Flags, TakeWhatMainGets) {
  Tool tool;
  char program[] = "tl-tool";
  char quiet[] = "--quiet";
  char* arguments[] = {program, quiet, nullptr};
  char** argv = arguments;
  const int argc = 2;
  EXPECT_TRUE(tool.flags.Parse({argv + 1, argv + argc}).ok());
  EXPECT_TRUE(tool.quiet);
}

TEST(Flags, TakeAnEmptyStringButNoEmptyNumber) {
  Tool tool;
  ExpectRuns(tool, {"--listen="});
  EXPECT_EQ(tool.listen, "");
  ExpectSays(tool.Refusal({"--workers="}), "'' is no whole number");
}

TEST(Flags, LetTheLastOfSeveralWin) {
  Tool tool;
  ExpectRuns(tool, {"--workers=1", "--workers=2", "--quiet", "--no-quiet"});
  EXPECT_EQ(tool.workers, 2);
  EXPECT_FALSE(tool.quiet);
}

TEST(Flags, TurnSwitchesOnAndOff) {
  for (const char* const off :
       {"--no-checksums", "--checksums=false", "--checksums=no",
        "--checksums=off", "--checksums=0"}) {
    Tool tool;
    ExpectRuns(tool, {off});
    EXPECT_FALSE(tool.checksums) << off;
  }
  for (const char* const on :
       {"--quiet", "--quiet=true", "--quiet=yes", "--quiet=on", "--quiet=1"}) {
    Tool tool;
    ExpectRuns(tool, {on});
    EXPECT_TRUE(tool.quiet) << on;
  }
}

TEST(Flags, ReadDurationsWithAndWithoutUnits) {
  for (const auto& [text, ms] :
       std::vector<std::pair<std::string, int>>{{"10", 10000},
                                                {"0.5", 500},
                                                {"250ms", 250},
                                                {"10s", 10000},
                                                {"2m", 120000},
                                                {"1.5h", 5400000},
                                                {"0", 0}}) {
    Tool tool;
    ExpectRuns(tool, {"--timeout", text.c_str()});
    EXPECT_EQ(tool.timeout, milliseconds(ms)) << text;
  }
}

struct BadValue {
  const char* argument;
  const char* said;
};

TEST(Flags, SayWhichValueIsBadAndWhatIsWanted) {
  for (const auto& [argument, said] : std::vector<BadValue>{
           {"--workers=many", "--workers=N: 'many' is no whole number"},
           {"--workers=1.5", "'1.5' is no whole number"},
           {"--workers=3x", "'3x' is no whole number"},
           {"--workers= 3", "' 3' is no whole number"},
           {"--workers=9223372036854775808", "too large"},
           {"--density=half", "--density=SHARE: 'half' is no number"},
           {"--density=nan", "'nan' is no number"},
           {"--density=inf", "'inf' is no number"},
           {"--density=1e999", "too large"},
           {"--quiet=maybe", "--quiet=true|false: 'maybe' is neither"},
           {"--format=xml", "'xml' is none of text, json"},
           {"--timeout=soon", "--timeout=SECONDS: 'soon' is no duration"},
           {"--timeout=5d", "'5d' is no duration"},
           {"--timeout=-1", "'-1' is negative"},
           {"--timeout=1e300", "too long"},
           {"--timeout=inf", "is no duration"},
           {"--timeout=0.1ms", "shorter than a millisecond"},
           {"--no-checksums=yes", "--no-checksums takes no value"}}) {
    Tool tool;
    ExpectSays(tool.Refusal({argument}), said);
  }
}

TEST(Flags, LeaveAVariableAloneWhoseValueIsBad) {
  Tool tool;
  tool.Refusal({"--workers=5x"});
  EXPECT_EQ(tool.workers, 4);
}

TEST(Flags, SuggestTheNearestName) {
  for (const auto& [argument, said] : std::vector<BadValue>{
           {"--lisen=x", "--lisen is unknown; did you mean --listen?"},
           {"--wokresr=3", "did you mean --workers?"},  // Swapped twice.
           {"--format_", "did you mean --format?"},
           {"--check", "did you mean --checksums?"},  // Its beginning.
           {"--no-checksum", "did you mean --no-checksums?"},
           {"--confg=x", "did you mean --config?"},
           {"--hlep", "did you mean --help?"}}) {
    Tool tool;
    ExpectSays(tool.Refusal({argument}), said);
  }
}

TEST(Flags, SuggestNothingWhenNothingIsNear) {
  for (const char* const argument : {"--bananas", "--x", "--no-bananas"}) {
    Tool tool;
    const std::string message = tool.Refusal({argument});
    ExpectSays(message, "is unknown");
    ExpectSays(message, "--help");
    EXPECT_EQ(message.find("did you mean"), std::string::npos) << message;
  }
}

TEST(Flags, RefuseWhatIsNoFlag) {
  for (const char* const argument : {"file", "-v", "--", ""}) {
    Tool tool;
    ExpectSays(tool.Refusal({argument}), "is no flag");
  }
  Tool tool;
  ExpectSays(tool.Refusal({"--quiet", "false"}), "--quiet=false");
}

TEST(Flags, NoticeAForgottenValue) {
  Tool tool;
  ExpectSays(tool.Refusal({"--workers"}), "--workers lacks its value");
  ExpectSays(tool.Refusal({"--workers", "--quiet"}), "its value, N");
  ExpectSays(tool.Refusal({"--config"}), "lacks its value, FILE");
}

TEST(Flags, AskedForHelpSetNothing) {
  for (const char* const help : {"--help", "-h"}) {
    Tool tool;
    const auto parsed = tool.Parse({"--workers=9", "--timeout=soon", help});
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(*parsed, Flags::Outcome::kHelp);
    EXPECT_EQ(tool.workers, 4);
  }
}

TEST(Config, HoldsTheSameNames) {
  Tool tool;
  const std::string path = WriteConfig(
      "# A comment\n"
      "\n"
      "listen = unix:/run/#1.sock   # and another\r\n"
      "workers=12\n"
      "\tchecksums = off\n"
      "peer = a\n"
      "peer = b");
  ExpectRuns(tool, {"--config", path.c_str()});
  EXPECT_EQ(tool.listen, "unix:/run/#1.sock");
  EXPECT_EQ(tool.workers, 12);
  EXPECT_FALSE(tool.checksums);
  EXPECT_EQ(tool.peers, (std::vector<std::string>{"a", "b"}));
}

TEST(Config, YieldsToTheCommandLine) {
  Tool tool;
  const std::string path = WriteConfig("workers = 1\npeer = a\nquiet = yes\n");
  const std::string config = "--config=" + path;
  ExpectRuns(tool, {"--workers=2", "--peer=b", "--peer=c", config.c_str()});
  EXPECT_EQ(tool.workers, 2);
  EXPECT_EQ(tool.peers, (std::vector<std::string>{"b", "c"}));
  EXPECT_TRUE(tool.quiet);
}

TEST(Config, IsBlamedByPathAndLine) {
  for (const auto& [line, said] :
       std::vector<BadValue>{{"workers = many", "'many' is no whole number"},
                             {"timeout = 2m#", "'2m#' is no duration"},
                             {"lisen = x", "did you mean --listen?"},
                             {"quiet", "'quiet' is not `name = value`"},
                             {"no-quiet = true", "write quiet = false"},
                             {"config = other", "for the command line only"},
                             {"help = true", "for the command line only"}}) {
    Tool tool;
    const std::string path = WriteConfig(std::string("\n#\n") + line + "\n");
    const std::string message = tool.Refusal({"--config", path.c_str()});
    ExpectSays(message, path + ":3: ");
    ExpectSays(message, said);
  }
}

TEST(Config, ThatCannotBeReadIsAnErrorOfTheSystem) {
  for (const std::string& path :
       {::testing::TempDir() + "/there/is/none", ::testing::TempDir()}) {
    Tool tool;
    const auto parsed = tool.Parse({"--config", path.c_str()});
    ASSERT_FALSE(parsed.ok());
    EXPECT_EQ(parsed.error().code, ErrorCode::kIo);
    ExpectSays(parsed.error().message, "cannot read '" + path + "': ");
  }
}

TEST(Help, ShowsFlagsValuesAndDefaults) {
  Tool tool;
  tool.flags.Epilogue("Example:\n  tl-tool --quiet");
  tool.flags.Epilogue("See also: the manual.");
  EXPECT_EQ(tool.flags.Help(),
            R"(Usage: tl-tool [FLAGS]

Does what tests need.

  --listen=host:port|unix:/path
                          where to listen (default: 0.0.0.0:7070)
  --quiet                 say less
  --[no-]checksums        check every frame (default: on)
  --workers=N             how many to wait for (default: 4)
  --density=SHARE         what part is sent (default: 0.01)
  --timeout=SECONDS       when to give up (default: 30s)
  --format=text|json      of the log (default: text)
  --peer=HOST             whom to call; may be repeated (default: default)
  --config=FILE           read flags from FILE, one `name = value` to a line;
                          the command line wins
  --help                  show this and exit

Example:
  tl-tool --quiet

See also: the manual.
)");
}

TEST(Help, ShowsDurationsInTheLargestUnitThatFits) {
  for (const auto& [ms, said] :
       std::vector<std::pair<int, std::string>>{{0, "0s"},
                                                {250, "250ms"},
                                                {90000, "90s"},
                                                {120000, "2m"},
                                                {7200000, "2h"}}) {
    milliseconds duration(ms);
    Flags flags("t", "s");
    flags.Add("d", &duration, "SECONDS", "h");
    ExpectSays(flags.Help(), "(default: " + said + ")");
  }
}

TEST(Help, FitsEightyColumnsWhateverItIsGiven) {
  std::string words;
  for (int i = 0; i < 60; ++i) words += std::string(i % 11 + 1, 'w') + " ";
  std::string path = "/" + std::string(200, 'p');
  std::string choice = "alpha";
  Flags flags("t", words);
  flags.Add("path", &path, "PATH", words);
  flags.AddChoice("choice", &choice,
                  {"alpha", std::string(30, 'b'), std::string(40, 'c')}, words);
  flags.Epilogue("    " + words);
  const std::string help = flags.Help();
  std::istringstream lines(help);
  size_t longest = 0;
  for (std::string line; std::getline(lines, line);) {
    longest = std::max(longest, line.size());
  }
  EXPECT_EQ(longest, 80u) << help;
  ExpectSays(help, "--choice=CHOICE");
  ExpectSays(help, std::string(40, 'c'));
}

}  // namespace
}  // namespace tensorlightning
