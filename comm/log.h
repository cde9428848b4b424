// Structured logs: one line per event, for people and for programs alike.
//
//   log.Info("joined", {{"rank", 3}, {"worker", "host:4711"}});
//
//   text   2026-11-16T05:42:41.123Z info joined rank=3 worker=host:4711
//   json   {"time":"...","level":"info","event":"joined","rank":3,...}
//
// A line is written with one system call, so that lines of several threads
// never mix. Values with spaces or quotes are quoted and escaped, in text too.
#ifndef TENSORLIGHTNING_COMM_LOG_H_
#define TENSORLIGHTNING_COMM_LOG_H_

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>

namespace tensorlightning {

enum class LogLevel : uint8_t { kDebug, kInfo, kWarning, kError, kNone };

struct LogField {
  template <std::integral T>
  LogField(std::string_view name, T value)
      : key(name), number(static_cast<int64_t>(value)) {}
  LogField(std::string_view name, double value) : key(name), number(value) {}
  LogField(std::string_view name, std::string_view value)
      : key(name), number(value) {}
  LogField(std::string_view name, const std::string& value)
      : key(name), number(std::string_view(value)) {}
  LogField(std::string_view name, const char* value)
      : key(name), number(std::string_view(value)) {}

  std::string_view key;
  std::variant<int64_t, double, std::string_view> number;
};

class Log {
 public:
  enum class Format : uint8_t { kText, kJson };

  // Writes to the file descriptor, which must stay open. Thread-safe.
  explicit Log(int fd = 2, LogLevel least = LogLevel::kInfo,
               Format format = Format::kText)
      : fd_(fd), least_(least), format_(format) {}

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
// U+FFFD.
std::string JsonQuote(std::string_view text);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_LOG_H_
