// The rule of a name on a command line.
#ifndef TENSORLIGHTNING_COMM_TOOLS_RULE_NAMES_H_
#define TENSORLIGHTNING_COMM_TOOLS_RULE_NAMES_H_

#include <optional>
#include <string_view>

#include "comm/messages.h"

namespace tensorlightning {

// None for any other name.
inline std::optional<Rule> RuleFromName(std::string_view name) {
  for (int i = 0; i < kRules; ++i) {
    const auto rule = static_cast<Rule>(i);
    if (name == NameOf(rule)) return rule;
  }
  return std::nullopt;
}

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_RULE_NAMES_H_
