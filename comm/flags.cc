#include "comm/flags.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

namespace tensorlightning {
namespace {

constexpr std::string_view kConfig = "config";
constexpr std::string_view kHelp = "help";
constexpr std::string_view kNegation = "no-";

Error Invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

std::string Quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

Error LacksValue(const std::string& name, const std::string& value) {
  return Invalid("--" + name + " lacks its value, " + value);
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// How many letters to add, drop, change or swap with the next, at least.
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before;
  std::vector<size_t> above(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::vector<size_t> row(b.size() + 1, i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = a[i - 1] == b[j - 1];
      row[j] = std::min(
          {above[j] + 1, row[j - 1] + 1, above[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(above, std::move(row));
  }
  return above.back();
}

}  // namespace

Flags::Flags(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}

void Flags::Insert(Flag flag) {
  assert(Find(flag.name) == nullptr && flag.name != kConfig &&
         flag.name != kHelp);
  flags_.push_back(std::move(flag));
}

void Flags::Epilogue(std::string_view text) {
  if (!epilogue_.empty()) epilogue_ += "\n\n";
  epilogue_ += text;
}

Flags::Flag* Flags::Find(std::string_view name) {
  const auto found =
      std::find_if(flags_.begin(), flags_.end(),
                   [&](const Flag& f) { return f.name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

const Flags::Flag* Flags::Negated(std::string_view name) {
  if (!name.starts_with(kNegation)) return nullptr;
  const Flag* const flag = Find(name.substr(kNegation.size()));
  return flag != nullptr && flag->is_switch() ? flag : nullptr;
}

Error Flags::Unknown(std::string_view written) const {
  std::vector<std::string> names = {std::string(kConfig), std::string(kHelp)};
  for (const Flag& flag : flags_) {
    names.push_back(flag.name);
    if (flag.is_switch()) names.push_back(std::string(kNegation) + flag.name);
  }
  // A guess that is wrong by more than a third helps nobody; a beginning does.
  size_t best = std::max<size_t>(2, written.size() / 3) + 1;
  std::string suggested;
  for (const std::string& name : names) {
    const bool begins = written.size() > 1 && name.starts_with(written);
    const size_t distance = begins ? 1 : Distance(written, name);
    if (distance >= best || distance >= written.size()) continue;
    best = distance;
    suggested = name;
  }
  return Invalid(
      "--" + std::string(written) + " is unknown; " +
      (suggested.empty() ? "" : "did you mean --" + suggested + "? ") +
      "--help lists all flags");
}

Result<std::optional<std::vector<Flags::Given>>> Flags::Read(
    std::span<const char* const> arguments) {
  std::vector<Given> all;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view argument = arguments[i];
    if (argument == "-h") return {std::nullopt};
    if (!argument.starts_with("--") || argument == "--") {
      std::string hint;
      if (!all.empty() && Find(all.back().name) != nullptr &&
          Find(all.back().name)->is_switch()) {
        hint = "; a switch takes its value after '=': --" + all.back().name +
               "=" + std::string(argument);
      }
      return Invalid(Quoted(argument) + " is no flag: flags begin with --" +
                     hint + "; see --help");
    }
    argument.remove_prefix(2);
    const size_t equals = argument.find('=');
    const std::string name(argument.substr(0, equals));
    const bool has_value = equals != std::string_view::npos;
    if (name == kHelp) return {std::nullopt};

    const Flag* const flag = Find(name);
    if (has_value && (flag != nullptr || name == kConfig)) {
      all.push_back({name, std::string(argument.substr(equals + 1))});
    } else if (flag != nullptr && flag->is_switch()) {
      all.push_back({name, "true"});
    } else if (flag != nullptr || name == kConfig) {
      // A flag in the place of a value is a value forgotten.
      if (i + 1 == arguments.size() ||
          std::string_view(arguments[i + 1]).starts_with("--")) {
        const std::string value = flag != nullptr ? flag->value : "FILE";
        return LacksValue(name, value);
      }
      all.push_back({name, arguments[++i]});
    } else if (const Flag* const negated = Negated(name)) {
      if (has_value) {
        return Invalid("--" + name + " takes no value; write --" +
                       negated->name + "=true or --" + negated->name +
                       "=false");
      }
      all.push_back({negated->name, "false"});
    } else {
      return Unknown(name);
    }
  }
  return {std::move(all)};
}

Status Flags::Set(const Given& given, Source source) {
  Flag* const flag = Find(given.name);
  if (flag == nullptr) {
    if (const Flag* const negated = Negated(given.name)) {
      return Invalid("write " + negated->name + " = false instead of " +
                     given.name);
    }
    return Unknown(given.name);
  }
  if (flag->source != source && flag->clear) flag->clear();
  flag->source = source;
  Status status = flag->set(given.value);
  if (status.ok()) return status;
  const std::string wanted = flag->is_switch() ? "true|false" : flag->value;
  return Invalid("--" + given.name + "=" + wanted + ": " +
                 status.error().message);
}

Status Flags::ReadConfig(const std::string& path) {
  const auto failed = [&] {
    return Error{ErrorCode::kIo, "--config: cannot read " + Quoted(path) +
                                     ": " + std::strerror(errno)};
  };
  const auto close = [](std::FILE* file) { std::fclose(file); };
  const std::unique_ptr<std::FILE, decltype(close)> file(
      std::fopen(path.c_str(), "re"), close);
  if (file == nullptr) return failed();
  std::string all;
  std::array<char, 4096> buffer;
  while (const size_t n =
             std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    all.append(buffer.data(), n);
  }
  if (std::ferror(file.get()) != 0) return failed();

  std::string_view rest = all;
  for (size_t number = 1; !rest.empty(); ++number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    for (size_t i = 0; i < line.size(); ++i) {
      const bool word = i > 0 && line[i - 1] != ' ' && line[i - 1] != '\t';
      if (line[i] == '#' && !word) line = line.substr(0, i);
    }
    line = Trim(line);
    if (line.empty()) continue;
    const std::string where = path + ":" + std::to_string(number) + ": ";
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      return Invalid(where + Quoted(line) + " is not `name = value`");
    }
    const Given given{std::string(Trim(line.substr(0, equals))),
                      std::string(Trim(line.substr(equals + 1)))};
    if (given.name == kConfig || given.name == kHelp) {
      return Invalid(where + given.name + " is for the command line only");
    }
    const Status status = Set(given, Source::kConfig);
    if (!status.ok()) return Invalid(where + status.error().message);
  }
  return Done{};
}

Result<Flags::Outcome> Flags::Parse(std::span<const char* const> arguments) {
  for (Flag& flag : flags_) flag.source = Source::kDefault;
  const auto given = Read(arguments);
  if (!given.ok()) return given.error();
  if (!*given) return Outcome::kHelp;
  for (const Given& one : **given) {
    if (one.name != kConfig) continue;
    const Status status = ReadConfig(one.value);
    if (!status.ok()) return status.error();
  }
  for (const Given& one : **given) {
    if (one.name == kConfig) continue;
    const Status status = Set(one, Source::kCommandLine);
    if (!status.ok()) return status.error();
  }
  return Outcome::kRun;
}

}  // namespace tensorlightning
