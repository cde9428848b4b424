// Command lines of our tools: --name=value, --name value, --switch, --help, and
// a config file of the same names.
//
//   Flags flags("tl-aggregator", "Averages the models of workers.");
//   flags.Add("listen", &listen, "host:port|unix:/path", "where to listen");
//   flags.Add("quiet", &quiet, "say less");
//   Result<Flags::Outcome> parsed = flags.Parse({argv + 1, argv + argc});
//
// A switch is turned off by --no-name or --name=false. A config file (--config
// FILE, always there) has one `name = value` to a line; '#' at the start of a
// word starts a comment; the command line wins over it. An unknown name is an
// error that suggests the nearest one; a bad value an error that names flag,
// value and what is wanted, and for a config file its path and line.
#ifndef TENSORLIGHTNING_COMM_FLAGS_H_
#define TENSORLIGHTNING_COMM_FLAGS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

class Flags {
 public:
  enum class Outcome { kRun, kHelp };

  Flags(std::string program, std::string summary);

  // What is in the variable before Parse() is the default, and --help shows it.
  // `value`: what to put, for --help ("N", "SECONDS").
  void Add(std::string name, std::string* target, std::string value,
           std::string help);
  void Add(std::string name, bool* target, std::string help);
  void Add(std::string name, int64_t* target, std::string value,
           std::string help);
  void Add(std::string name, double* target, std::string value,
           std::string help);
  // Seconds, or with a unit: 250ms, 10s, 2m, 1h.
  void Add(std::string name, std::chrono::milliseconds* target,
           std::string value, std::string help);
  // One of `choices`.
  void AddChoice(std::string name, std::string* target,
                 std::vector<std::string> choices, std::string help);
  // May be given several times. What is given replaces the default, and the
  // command line what the config file gave.
  void Add(std::string name, std::vector<std::string>* target,
           std::string value, std::string help);
  // A paragraph at the end of --help, after those given before. Its line breaks
  // and indentations are kept.
  void Epilogue(std::string_view text);

  // Arguments that are no flags are an error. After an error some variables may
  // have been set; asked for help, none.
  Result<Outcome> Parse(std::span<const char* const> arguments);
  static constexpr size_t kColumns = 80;
  // Fits kColumns.
  std::string Help() const;

 private:
  enum class Source { kDefault, kConfig, kCommandLine };

  struct Flag {
    std::string name;
    std::string value;  // Empty: a switch.
    std::string help;
    std::string shown_default;
    // An error message without the flag's name.
    std::function<Status(std::string_view)> set;
    // Of a list only: forgets what a weaker source gave.
    std::function<void()> clear;
    Source source = Source::kDefault;

    bool is_switch() const { return value.empty(); }
  };

  struct Given {
    std::string name;
    std::string value;
  };

  void Insert(Flag flag);
  Flag* Find(std::string_view name);
  // The switch that --no-name turns off, or null.
  const Flag* Negated(std::string_view name);
  Error Unknown(std::string_view written) const;
  // What `arguments` say, or nothing if they ask for help.
  Result<std::optional<std::vector<Given>>> Read(
      std::span<const char* const> arguments);
  Status Set(const Given& given, Source source);
  Status ReadConfig(const std::string& path);

  std::string program_;
  std::string summary_;
  std::string epilogue_;
  std::vector<Flag> flags_;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_FLAGS_H_
