// What --help says: two columns, wrapped.
#include <algorithm>
#include <string>
#include <string_view>

#include "comm/flags.h"

namespace tensorlightning {
namespace {

constexpr size_t kHelpColumn = 26;

// Appends `text` to a line that is filled up to column `indent`, and goes on in
// that column. Words that are longer than a line are broken.
void AppendWrapped(std::string& out, std::string_view text, size_t indent) {
  const size_t room = Flags::kColumns - indent;
  size_t at = indent;
  bool first = true;
  while (!text.empty()) {
    std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    if (word.empty()) continue;
    if (!first && at + 1 + word.size() > Flags::kColumns) {
      out += "\n" + std::string(indent, ' ');
      at = indent;
      first = true;
    }
    if (!first) {
      out += ' ';
      ++at;
    }
    for (; word.size() > room; word.remove_prefix(room)) {
      out.append(word.substr(0, room)) += "\n" + std::string(indent, ' ');
      at = indent;
    }
    out += word;
    at += word.size();
    first = false;
  }
  out += '\n';
}

void AppendParagraph(std::string& out, std::string_view text) {
  out += '\n';
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t indent = std::min(line.find_first_not_of(' '),
                                   std::min(line.size(), kHelpColumn));
    out += std::string(indent, ' ');
    AppendWrapped(out, line, indent);
  }
}

void AppendFlag(std::string& out, const std::string& head,
                const std::string& help) {
  out += "  " + head;
  // Two spaces between the columns, or the text starts on a line of its own.
  if (head.size() + 4 > kHelpColumn) {
    out += "\n" + std::string(kHelpColumn, ' ');
  } else {
    out += std::string(kHelpColumn - head.size() - 2, ' ');
  }
  AppendWrapped(out, help, kHelpColumn);
}

}  // namespace

std::string Flags::Help() const {
  std::string out = "Usage: " + program_ + " [FLAGS]\n";
  AppendParagraph(out, summary_);
  out += '\n';
  for (const Flag& flag : flags_) {
    const bool on = flag.is_switch() && !flag.shown_default.empty();
    const std::string head = std::string(on ? "--[no-]" : "--") + flag.name +
                             (flag.is_switch() ? "" : "=" + flag.value);
    const std::string after = flag.shown_default.empty()
                                  ? ""
                                  : " (default: " + flag.shown_default + ")";
    AppendFlag(out, head, flag.help + after);
  }
  AppendFlag(out, "--config=FILE",
             "read flags from FILE, one `name = value` to a line; the command "
             "line wins");
  AppendFlag(out, "--help", "show this and exit");
  if (!epilogue_.empty()) AppendParagraph(out, epilogue_);
  return out;
}

}  // namespace tensorlightning
