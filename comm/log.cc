#include "comm/log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <type_traits>

namespace tensorlightning {
namespace {

static_assert(kMaxLogLine <= PIPE_BUF);

struct CodePoint {
  uint32_t value = 0;
  size_t bytes = 0;  // 0: no UTF-8.
};

// The first of `text`, which is not empty. Strict: no overlong forms, no
// surrogates, nothing above U+10FFFF.
CodePoint First(std::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<uint8_t>(text[i]));
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {};
  uint32_t value = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    value = value << 6 | (byte(i) & 0x3f);
  }
  const bool overlong =
      (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  const bool surrogate = value >= 0xd800 && value < 0xe000;
  if (overlong || surrogate || value > 0x10ffff) return {};
  return {value, bytes};
}

// What a terminal or an editor acts upon instead of showing it: C0 and C1
// controls, line and paragraph separators, and marks that reverse the text.
bool IsControl(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029 ||
         (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void AppendEscaped(std::string& out, uint32_t c) {
  switch (c) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x",
                    static_cast<unsigned>(c & 0xffff));
      out += escaped;
  }
}

// Whether text can do without quotes: as one word that a reader who splits at
// spaces and '=' takes for what it is.
bool IsWord(std::string_view text) {
  const auto plain = [](char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '\\' && c != '=';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), plain);
}

void AppendString(std::string& out, std::string_view text, Log::Format format) {
  constexpr std::string_view kCut = "...";
  std::string shortened;
  if (text.size() > kMaxLogValue) {
    size_t end = kMaxLogValue - kCut.size();
    // Not in the middle of a character.
    for (int i = 0; i < 3 && (text[end] & 0xc0) == 0x80; ++i) --end;
    shortened = std::string(text.substr(0, end)).append(kCut);
    text = shortened;
  }
  if (format == Log::Format::kText && IsWord(text)) {
    out += text;
  } else {
    out += JsonQuote(text);
  }
}

template <typename Number>
void AppendNumber(std::string& out, Number value) {
  char digits[32];
  const auto [end, error] =
      std::to_chars(digits, digits + sizeof(digits), value);
  out.append(digits, end);
}

void AppendValue(std::string& out, const LogField& field, Log::Format format) {
  std::visit(
      [&](auto value) {
        using Value = decltype(value);
        if constexpr (std::is_same_v<Value, std::string_view>) {
          AppendString(out, value, format);
        } else if constexpr (std::is_same_v<Value, bool>) {
          out += value ? "true" : "false";
        } else if constexpr (std::is_same_v<Value, double>) {
          // JSON has no such numbers, but a log without them would hide what
          // people look for.
          if (std::isfinite(value)) {
            AppendNumber(out, value);
          } else {
            AppendString(out,
                         std::isnan(value) ? "nan"
                         : value > 0       ? "inf"
                                           : "-inf",
                         format);
          }
        } else {
          AppendNumber(out, value);
        }
      },
      field.value);
}

void AppendField(std::string& out, const LogField& field, Log::Format format) {
  out += format == Log::Format::kJson ? ',' : ' ';
  AppendString(out, field.key, format);
  out += format == Log::Format::kJson ? ':' : '=';
  AppendValue(out, field, format);
}

// 2026-11-16T05:42:41.123Z
std::string Now() {
  using std::chrono::milliseconds;
  const auto now = std::chrono::floor<milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  const auto seconds = static_cast<time_t>(now.count() / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char text[32];
  const size_t length =
      std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
  char milli[8];
  std::snprintf(milli, sizeof(milli), ".%03dZ",
                static_cast<int>(now.count() % 1000));
  return std::string(text, length) + milli;
}

std::string_view Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
    case LogLevel::kNone:
      break;
  }
  return "none";
}

}  // namespace

void Log::Debug(std::string_view event, Fields fields) const {
  Write(LogLevel::kDebug, event, fields);
}

void Log::Info(std::string_view event, Fields fields) const {
  Write(LogLevel::kInfo, event, fields);
}

void Log::Warning(std::string_view event, Fields fields) const {
  Write(LogLevel::kWarning, event, fields);
}

void Log::Error(std::string_view event, Fields fields) const {
  Write(LogLevel::kError, event, fields);
}

void Log::Write(LogLevel level, std::string_view event, Fields fields) const {
  if (level < least_) return;
  // Callers log why a call failed, and may look at errno again.
  const int saved_errno = errno;
  const bool json = format_ == Format::kJson;

  std::string line = json ? R"({"time":")" + Now() + R"(","level":")" : Now();
  if (!json) line += ' ';
  line += Name(level);
  line += json ? R"(","event":)" : " ";
  // Names of events are short; this is for those that come from elsewhere.
  AppendString(line, event.substr(0, kMaxLogValue / 4), format_);

  // Room for left_out, with a count, and the end.
  constexpr size_t kTail = 48;
  size_t left_out = 0;
  for (const LogField& field : fields) {
    const size_t before = line.size();
    AppendField(line, field, format_);
    if (line.size() + kTail > kMaxLogLine) {
      line.resize(before);
      ++left_out;
    }
  }
  if (left_out > 0) AppendField(line, {"left_out", left_out}, format_);
  line += json ? "}\n" : "\n";

  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t written = write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    // A log that can't be written has nobody to tell it to.
    if (written <= 0) break;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  errno = saved_errno;
}

std::string JsonQuote(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const CodePoint point = First(text);
    if (point.bytes == 0) {
      out += "\xef\xbf\xbd";  // U+FFFD
      text.remove_prefix(1);
      continue;
    }
    if (IsControl(point.value)) {
      AppendEscaped(out, point.value);
    } else {
      if (point.value == '"' || point.value == '\\') out += '\\';
      out += text.substr(0, point.bytes);
    }
    text.remove_prefix(point.bytes);
  }
  return out + '"';
}

}  // namespace tensorlightning
