// The kinds of flags: how text becomes a value of each, and a default text.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <type_traits>
#include <utility>

#include "comm/flags.h"

namespace tensorlightning {
namespace {

Error Bad(std::string_view text, const std::string& why) {
  return {ErrorCode::kInvalidArgument, "'" + std::string(text) + "' " + why};
}

std::string Joined(const std::vector<std::string>& words,
                   std::string_view between) {
  std::string joined;
  for (const std::string& word : words) {
    if (!joined.empty()) joined += between;
    joined += word;
  }
  return joined;
}

template <typename T>
Status SetNumber(std::string_view text, T* target) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc::result_out_of_range && stop == end) {
    return Bad(text, "is too large or too small");
  }
  bool good = error == std::errc() && stop == end;
  if constexpr (std::is_floating_point_v<T>) {
    good = good && std::isfinite(number);
  }
  if (!good) {
    return Bad(text, std::is_floating_point_v<T> ? "is no number"
                                                 : "is no whole number");
  }
  *target = number;
  return Done{};
}

Status SetSwitch(std::string_view text, bool* target) {
  constexpr std::array<std::string_view, 4> kYes = {"true", "yes", "on", "1"};
  constexpr std::array<std::string_view, 4> kNo = {"false", "no", "off", "0"};
  const bool yes = std::find(kYes.begin(), kYes.end(), text) != kYes.end();
  const bool no = std::find(kNo.begin(), kNo.end(), text) != kNo.end();
  if (!yes && !no) return Bad(text, "is neither true nor false");
  *target = yes;
  return Done{};
}

struct Unit {
  std::string_view name;
  int64_t milliseconds;
};
constexpr std::array<Unit, 4> kUnits = {
    {{"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}}};

Status SetDuration(std::string_view text, std::chrono::milliseconds* target) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(stop, static_cast<size_t>(end - stop));
  const auto* const known =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) {
        return unit.empty() ? u.name == "s" : u.name == unit;
      });
  if (error != std::errc() || !std::isfinite(number) || known == kUnits.end()) {
    return Bad(text, "is no duration: seconds, or a number with ms, s, m or h");
  }
  const double ms = number * static_cast<double>(known->milliseconds);
  constexpr double kLongestMs = 1e15;  // 30000 years; exact in a double.
  if (number < 0) return Bad(text, "is negative");
  if (number > 0 && ms < 1) return Bad(text, "is shorter than a millisecond");
  if (ms > kLongestMs) return Bad(text, "is too long");
  *target = std::chrono::milliseconds(std::llround(ms));
  return Done{};
}

std::string ToText(std::chrono::milliseconds duration) {
  for (const Unit& unit : kUnits) {
    if (duration.count() != 0 && duration.count() % unit.milliseconds == 0) {
      return std::to_string(duration.count() / unit.milliseconds) +
             std::string(unit.name);
    }
  }
  return "0s";
}

std::string ToText(double number) {
  std::array<char, 32> digits;
  char* const end = digits.data() + digits.size();
  return {digits.data(), std::to_chars(digits.data(), end, number).ptr};
}

}  // namespace

void Flags::Add(std::string name, std::string* target, std::string value,
                std::string help) {
  Insert({.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .shown_default = *target,
          .set = [target](std::string_view text) -> Status {
            *target = text;
            return Done{};
          },
          .clear = {}});
}

void Flags::Add(std::string name, bool* target, std::string help) {
  Insert({.name = std::move(name),
          .value = {},
          .help = std::move(help),
          .shown_default = *target ? "on" : "",
          .set = [target](std::string_view t) { return SetSwitch(t, target); },
          .clear = {}});
}

void Flags::Add(std::string name, int64_t* target, std::string value,
                std::string help) {
  Insert({.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .shown_default = std::to_string(*target),
          .set = [target](std::string_view t) { return SetNumber(t, target); },
          .clear = {}});
}

void Flags::Add(std::string name, double* target, std::string value,
                std::string help) {
  Insert({.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help),
          .shown_default = ToText(*target),
          .set = [target](std::string_view t) { return SetNumber(t, target); },
          .clear = {}});
}

void Flags::Add(std::string name, std::chrono::milliseconds* target,
                std::string value, std::string help) {
  Insert(
      {.name = std::move(name),
       .value = std::move(value),
       .help = std::move(help),
       .shown_default = ToText(*target),
       .set = [target](std::string_view t) { return SetDuration(t, target); },
       .clear = {}});
}

void Flags::AddChoice(std::string name, std::string* target,
                      std::vector<std::string> choices, std::string help) {
  std::string value = Joined(choices, "|");
  // "  --name=" and the choices have to fit a line.
  if (name.size() + value.size() + 5 > kColumns) {
    help += "; one of " + Joined(choices, ", ");
    value = "CHOICE";
  }
  Insert(
      {.name = std::move(name),
       .value = std::move(value),
       .help = std::move(help),
       .shown_default = *target,
       .set = [target,
               choices = std::move(choices)](std::string_view text) -> Status {
         if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
           return Bad(text, "is none of " + Joined(choices, ", "));
         }
         *target = text;
         return Done{};
       },
       .clear = {}});
}

void Flags::Add(std::string name, std::vector<std::string>* target,
                std::string value, std::string help) {
  Insert({.name = std::move(name),
          .value = std::move(value),
          .help = std::move(help) + "; may be repeated",
          .shown_default = Joined(*target, ", "),
          .set = [target](std::string_view text) -> Status {
            target->emplace_back(text);
            return Done{};
          },
          .clear = [target] { target->clear(); }});
}

}  // namespace tensorlightning
