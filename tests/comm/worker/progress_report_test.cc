#include "comm/worker/progress_report.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <string>

namespace tensorlightning {
namespace {

class ProgressReportTest : public testing::Test {
 protected:
  ProgressReportTest() { EXPECT_EQ(pipe(ends_.data()), 0); }
  ~ProgressReportTest() override {
    CloseReader();
    close(ends_[1]);
  }

  int writer() const { return ends_[1]; }
  std::string Read() {
    std::string text(1 << 16, '\0');
    text.resize(static_cast<size_t>(
        std::max<ssize_t>(0, read(ends_[0], text.data(), text.size()))));
    return text;
  }
  void CloseReader() {
    if (ends_[0] >= 0) close(ends_[0]);
    ends_[0] = -1;
  }

 private:
  std::array<int, 2> ends_{};
};

TEST_F(ProgressReportTest, IsALineOfJsonAndThenNotDueForAWhile) {
  ProgressReport report(writer());
  ASSERT_TRUE(report.IsDue());
  report.Send({.steps = 120,
               .loss = 0.5,
               .sent = 7,
               .received = 8,
               .dense = 900,
               .exchanges = 12,
               .density = 0.25,
               .staleness = 1.5,
               .live = 4,
               .policy = "local"});
  EXPECT_FALSE(report.IsDue());
  const std::string line = Read();
  EXPECT_EQ(line.front(), '{');
  EXPECT_EQ(line.substr(line.size() - 2), "}\n");
  for (const char* field :
       {R"("step":120)", R"("done":false)", R"("steps_per_s":)",
        R"("loss":0.5)", R"("sent":7)", R"("received":8)", R"("dense":900)",
        R"("exchanges":12)", R"("density":0.25)", R"("staleness":1.5)",
        R"("live":4)", R"("policy":"local")"}) {
    EXPECT_NE(line.find(field), std::string::npos) << field << " in " << line;
  }
}

TEST_F(ProgressReportTest, SaysNothingOfALossThatIsNone) {
  ProgressReport report(writer());
  report.Send({});
  EXPECT_EQ(Read().find("loss"), std::string::npos);
  report.Send({.loss = std::numeric_limits<double>::quiet_NaN()});
  EXPECT_NE(Read().find(R"("loss":null)"), std::string::npos);
}

TEST_F(ProgressReportTest, DropsWhatAFullPipeDoesNotTake) {
  ProgressReport report(writer());
  for (uint64_t i = 0; i < 10'000; ++i) report.Send({.steps = i});
  EXPECT_EQ(Read().find(R"("step":0,)"), 1u);
}

TEST_F(ProgressReportTest, OutlivesItsReader) {
  ProgressReport report(writer());
  CloseReader();
  report.Send({});  // SIGPIPE would end the test.
  EXPECT_FALSE(report.IsDue());
  report.Send({});
}

TEST_F(ProgressReportTest, FindsItsPipeInTheEnvironment) {
  setenv("TL_REPORT_FD", std::to_string(writer()).c_str(), 1);
  ProgressReport report = ProgressReport::FromEnvironment();
  EXPECT_TRUE(report.IsDue());
  EXPECT_TRUE(fcntl(writer(), F_GETFD) & FD_CLOEXEC);
  for (const char* none : {"", "12x", "-1", "1000000"}) {
    setenv("TL_REPORT_FD", none, 1);
    EXPECT_FALSE(ProgressReport::FromEnvironment().IsDue()) << none;
  }
  unsetenv("TL_REPORT_FD");
  EXPECT_FALSE(ProgressReport::FromEnvironment().IsDue());
}

}  // namespace
}  // namespace tensorlightning
