// Tagged `threads`: runs under TSan.
#include "comm/log.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace tensorlightning {
namespace {

// A file in memory that a Log may write to.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("log", 0)) { EXPECT_GE(fd_, 0); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int fd() const { return fd_; }

  std::string Text() const {
    std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    EXPECT_EQ(pread(fd_, text.data(), text.size(), 0),
              static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  int fd_;
};

// What is logged, without the time.
template <typename Logging>
std::string Logged(Log::Format format, Logging logging,
                   LogLevel least = LogLevel::kDebug) {
  const MemoryFile file;
  logging(Log(file.fd(), least, format));
  const std::regex time(R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)");
  return std::regex_replace(file.Text(), time, "TIME");
}

template <typename Value>
std::string LoggedValue(Log::Format format, Value value) {
  return Logged(format, [&](const Log& log) { log.Info("e", {{"k", value}}); });
}

std::string Text(std::string_view value) {
  return LoggedValue(Log::Format::kText, value);
}

TEST(Log, WritesOneLineForPeople) {
  EXPECT_EQ(Logged(Log::Format::kText,
                   [](const Log& log) {
                     log.Info("joined", {{"rank", 3}, {"worker", "host:4711"}});
                   }),
            "TIME info joined rank=3 worker=host:4711\n");
}

TEST(Log, WritesOneLineForPrograms) {
  EXPECT_EQ(Logged(Log::Format::kJson,
                   [](const Log& log) {
                     log.Info("joined", {{"rank", 3}, {"worker", "host:4711"}});
                     log.Error("bye");
                   }),
            "{\"time\":\"TIME\",\"level\":\"info\",\"event\":\"joined\","
            "\"rank\":3,\"worker\":\"host:4711\"}\n"
            "{\"time\":\"TIME\",\"level\":\"error\",\"event\":\"bye\"}\n");
}

TEST(Log, TellsTheTimeInUtc) {
  // Nine hours from UTC, wherever the test runs.
  const char* const zone = std::getenv("TZ");
  const std::string saved = zone != nullptr ? zone : "";
  setenv("TZ", "XXX-9", 1);
  tzset();
  const auto before = std::chrono::system_clock::now();
  const MemoryFile file;
  Log(file.fd()).Info("now");
  const auto after = std::chrono::system_clock::now();
  zone != nullptr ? setenv("TZ", saved.c_str(), 1) : unsetenv("TZ");
  tzset();
  const std::string text = file.Text();
  std::tm utc{};
  const char* const rest = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S.", &utc);
  ASSERT_NE(rest, nullptr) << text;
  const auto told = std::chrono::system_clock::from_time_t(timegm(&utc)) +
                    std::chrono::milliseconds(std::strtol(rest, nullptr, 10));
  EXPECT_GT(told, before - std::chrono::milliseconds(1));
  EXPECT_LE(told, after);
}

TEST(Log, LeavesOutWhatIsBelowItsLevel) {
  const auto all = [](const Log& log) {
    log.Debug("d");
    log.Info("i");
    log.Warning("w");
    log.Error("e");
  };
  EXPECT_EQ(Logged(Log::Format::kText, all, LogLevel::kDebug),
            "TIME debug d\nTIME info i\nTIME warning w\nTIME error e\n");
  EXPECT_EQ(Logged(Log::Format::kText, all, LogLevel::kWarning),
            "TIME warning w\nTIME error e\n");
  EXPECT_EQ(Logged(Log::Format::kText, all, LogLevel::kNone), "");
}

TEST(Log, WritesNumbersOfEveryKind) {
  EXPECT_EQ(Logged(Log::Format::kText,
                   [](const Log& log) {
                     log.Info("n",
                              {{"least", std::numeric_limits<int64_t>::min()},
                               {"most", std::numeric_limits<uint64_t>::max()},
                               {"byte", uint8_t{200}},
                               {"yes", true},
                               {"share", 0.1},
                               {"tiny", 1e-300}});
                   }),
            "TIME info n least=-9223372036854775808 most=18446744073709551615 "
            "byte=200 yes=true share=0.1 tiny=1e-300\n");
}

TEST(Log, WritesNumbersThatJsonDoesNotHaveAsStrings) {
  const std::string start = R"({"time":"TIME","level":"info","event":"e","k":)";
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(LoggedValue(Log::Format::kJson, std::nan("")),
            start + "\"nan\"}\n");
  EXPECT_EQ(LoggedValue(Log::Format::kJson, inf), start + "\"inf\"}\n");
  EXPECT_EQ(LoggedValue(Log::Format::kJson, -inf), start + "\"-inf\"}\n");
  EXPECT_EQ(LoggedValue(Log::Format::kText, -inf), "TIME info e k=-inf\n");
}

TEST(Log, QuotesWhatIsNotOneWord) {
  EXPECT_EQ(Text("one"), "TIME info e k=one\n");
  EXPECT_EQ(Text(""), "TIME info e k=\"\"\n");
  EXPECT_EQ(Text("two words"), "TIME info e k=\"two words\"\n");
  EXPECT_EQ(Text("a=b"), "TIME info e k=\"a=b\"\n");
  EXPECT_EQ(Text("say \"hi\""), "TIME info e k=\"say \\\"hi\\\"\"\n");
  EXPECT_EQ(Text("back\\slash"), "TIME info e k=\"back\\\\slash\"\n");
  EXPECT_EQ(Text("gr\u00fcn"), "TIME info e k=\"gr\u00fcn\"\n");
}

TEST(Log, CannotBeMadeToForgeALine) {
  const std::string hostile("x\n2026 info\r\x1b[2K\0\x7f\u0085\u2028\u202e",
                            26);
  for (const Log::Format format : {Log::Format::kText, Log::Format::kJson}) {
    const std::string logged = Logged(format, [&](const Log& log) {
      log.Info(hostile, {{hostile, hostile}, {"after", 1}});
    });
    for (size_t i = 0; i < logged.size(); ++i) {
      const auto byte = static_cast<uint8_t>(logged[i]);
      const bool end = i + 1 == logged.size();
      EXPECT_EQ(byte == '\n', end) << logged;
      EXPECT_TRUE(end || (byte >= 0x20 && byte < 0x7f)) << logged;
    }
    EXPECT_NE(logged.find("x\\n2026 info\\r\\u001b[2K\\u0000\\u007f"),
              std::string::npos)
        << logged;
  }
}

TEST(Log, CutsLongValuesBetweenCharacters) {
  static_assert((kMaxLogValue - 3) % 3 != 0, "or the cut falls between them");
  std::string text;
  while (text.size() <= kMaxLogValue) text += "\u20ac";
  const std::string logged = Text(text);
  EXPECT_EQ(logged.find("\ufffd"), std::string::npos);
  EXPECT_TRUE(logged.ends_with("\u20ac...\"\n")) << logged;
  EXPECT_LE(logged.size(), kMaxLogValue + 30);
  EXPECT_EQ(Text(std::string(kMaxLogValue, 'x')),
            "TIME info e k=" + std::string(kMaxLogValue, 'x') + "\n");
}

TEST(Log, NeverWritesMoreThanAPipeTakesAtOnce) {
  const std::string text(5000, '\1');  // Six bytes each when escaped.
  const std::string word(900, 'w');
  for (const Log::Format format : {Log::Format::kText, Log::Format::kJson}) {
    const std::string logged = Logged(format, [&](const Log& log) {
      log.Info(text, {{"hostile", text},
                      {"a", word},
                      {"b", word},
                      {"c", word},
                      {"kept", 1}});
    });
    EXPECT_LE(logged.size(), kMaxLogLine);
    const bool json = format == Log::Format::kJson;
    EXPECT_EQ(logged.find("hostile"), std::string::npos);
    EXPECT_NE(logged.find(json ? "\"kept\":1,\"left_out\":2}\n"
                               : " kept=1 left_out=2\n"),
              std::string::npos)
        << logged;
  }
}

TEST(Log, LeavesErrnoAlone) {
  errno = EDOM;
  Log(-1).Info("to nobody");
  EXPECT_EQ(errno, EDOM);
}

TEST(JsonQuote, EscapesWhatJsonDemands) {
  EXPECT_EQ(JsonQuote("plain"), "\"plain\"");
  EXPECT_EQ(JsonQuote(""), "\"\"");
  EXPECT_EQ(JsonQuote("\"\\\n\r\t\b"), R"("\"\\\n\r\t\u0008")");
}

TEST(JsonQuote, KeepsUtf8) {
  for (const char* const text :
       {"\u00a0", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff",
        "\U00010000", "\U0010ffff"}) {
    EXPECT_EQ(JsonQuote(text), "\"" + std::string(text) + "\"");
  }
}

TEST(JsonQuote, ReplacesEachByteThatIsNoUtf8) {
  const std::string mark = "\ufffd";
  EXPECT_EQ(JsonQuote("a\x80z"), "\"a" + mark + "z\"");
  EXPECT_EQ(JsonQuote("\xff\xfe"), "\"" + mark + mark + "\"");
  // Overlong, a surrogate, above U+10FFFF, cut short.
  EXPECT_EQ(JsonQuote("\xc0\xaf"), "\"" + mark + mark + "\"");
  EXPECT_EQ(JsonQuote("\xe0\x80\xaf"), "\"" + mark + mark + mark + "\"");
  EXPECT_EQ(JsonQuote("\xf0\x80\x80\xaf"),
            "\"" + mark + mark + mark + mark + "\"");
  EXPECT_EQ(JsonQuote("\xed\xa0\x80"), "\"" + mark + mark + mark + "\"");
  EXPECT_EQ(JsonQuote("\xf4\x90\x80\x80"),
            "\"" + mark + mark + mark + mark + "\"");
  EXPECT_EQ(JsonQuote("\xe2\x82"), "\"" + mark + mark + "\"");
  EXPECT_EQ(JsonQuote("\xe2\x82x"), "\"" + mark + mark + "x\"");
}

// Through a pipe, which mixes what is longer than it takes at once.
TEST(Log, DoesNotMixLinesOfThreads) {
  constexpr int kThreads = 4;
  constexpr int kLines = 300;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const Log log(ends[1]);
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&log, t] {
      // Escaped, four of these come to nearly a full line.
      const std::string filling(150, static_cast<char>('\1' + t));
      for (int i = 0; i < kLines; ++i) {
        log.Info("line", {{"thread", t},
                          {"i", i},
                          {"a", filling},
                          {"b", filling},
                          {"c", filling},
                          {"d", filling},
                          {"last", t}});
      }
    });
  }
  std::string text;
  std::thread reader([&] {
    char buffer[1000];
    for (ssize_t n; (n = read(ends[0], buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(n));
    }
  });
  for (std::thread& thread : threads) thread.join();
  close(ends[1]);
  reader.join();
  close(ends[0]);

  std::vector<int> next(kThreads, 0);
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    int thread = -1;
    int i = -1;
    ASSERT_EQ(
        std::sscanf(line.c_str(), "%*s info line thread=%d i=%d", &thread, &i),
        2)
        << line;
    ASSERT_EQ(i, next.at(static_cast<size_t>(thread))++);
    std::string filling;
    for (int n = 0; n < 150; ++n) {
      filling += "\\u000" + std::to_string(1 + thread);
    }
    std::string wanted =
        " thread=" + std::to_string(thread) + " i=" + std::to_string(i);
    for (const char name : {'a', 'b', 'c', 'd'}) {
      wanted += std::string(" ") + name + "=\"" + filling + "\"";
    }
    ASSERT_TRUE(
        line.ends_with("line" + wanted + " last=" + std::to_string(thread)))
        << line;
  }
  EXPECT_EQ(next, std::vector<int>(kThreads, kLines));
}

}  // namespace
}  // namespace tensorlightning
