// Any text at all: what remains has the same length and lines, and no block.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "caffe_layers/solver_text.h"

namespace tensorlightning {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

void Cut(std::string_view text) {
  const Result<SolverText> cut = SolverText::Cut(text);
  if (!cut.ok()) {
    Check(cut.error().message.find(": ") != std::string::npos);
    return;
  }
  Check(cut->plain.size() == text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const bool newline = text[i] == '\n';
    Check((cut->plain[i] == '\n') == newline);
    Check(cut->plain[i] == text[i] || cut->plain[i] == ' ');
  }
  const Result<SolverText> again = SolverText::Cut(cut->plain);
  Check(again.ok() && !again->settings.has_value());
  Check(again->plain == cut->plain);
}

}  // namespace
}  // namespace tensorlightning

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tensorlightning::Cut({reinterpret_cast<const char*>(data), size});
  return 0;
}
