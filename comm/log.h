// Structured logs: one line per event, for people and for programs alike.
//
//   log.Info("joined", {{"rank", 3}, {"worker", "host:4711"}});
//
//   text   2026-11-16T05:42:41.123Z info joined rank=3 worker=host:4711
//   json   {"time":"...","level":"info","event":"joined","rank":3,...}
//
// A line is written with one system call and is never longer than a pipe takes
// at once, so that lines of several threads never mix. Values with spaces or
// quotes are quoted and escaped, in text too, and so is whatever would end a
// line or move a terminal's cursor: a peer's string can't forge a line. Strings
// are cut after kMaxLogValue bytes; fields for which there is no room are left
// out and counted in a last field, left_out.
#ifndef TENSORLIGHTNING_COMM_LOG_H_
#define TENSORLIGHTNING_COMM_LOG_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace tensorlightning {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kNone };

inline constexpr size_t kMaxLogLine = 4096;  // PIPE_BUF.
inline constexpr size_t kMaxLogValue = 1024;

struct LogField {
  // Only for bool itself: pointers must not become one.
  template <std::same_as<bool> T>
  LogField(std::string_view name, T given) : key(name), value(given) {}
  template <std::signed_integral T>
  LogField(std::string_view name, T given)
      : key(name), value(static_cast<int64_t>(given)) {}
  template <std::unsigned_integral T>
  requires(!std::same_as<T, bool>) LogField(std::string_view name, T given)
      : key(name), value(static_cast<uint64_t>(given)) {}
  LogField(std::string_view name, double given) : key(name), value(given) {}
  LogField(std::string_view name, std::string_view given)
      : key(name), value(given) {}
  LogField(std::string_view name, const char* given)
      : key(name), value(std::string_view(given)) {}

  std::string_view key;
  std::variant<bool, int64_t, uint64_t, double, std::string_view> value;
};

class Log {
 public:
  enum class Format : uint8_t { kText, kJson };

  // Writes to the file descriptor, which must stay open. Thread-safe.
  explicit Log(int fd, LogLevel least = LogLevel::kInfo,
               Format format = Format::kText)
      : fd_(fd), least_(least), format_(format) {}
  Log() : Log(2) {}  // stderr

  using Fields = std::initializer_list<LogField>;
  void Debug(std::string_view event, Fields fields = {}) const;
  void Info(std::string_view event, Fields fields = {}) const;
  void Warning(std::string_view event, Fields fields = {}) const;
  void Error(std::string_view event, Fields fields = {}) const;

 private:
  void Write(LogLevel level, std::string_view event, Fields fields) const;

  int fd_;
  LogLevel least_;
  Format format_;
};

// `text` as a JSON string, with its quotes. Bytes that are no UTF-8 become
// U+FFFD; control characters, also those of Unicode, are escaped.
std::string JsonQuote(std::string_view text);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_LOG_H_
