// Writes valid codes, one of each kind of index and value, as seeds for
// decode_fuzz:  bazel run //tests/fuzz:make_seeds -- <absolute folder>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/exchange.h"

namespace tensorlightning {
namespace {

using Keeps = std::function<bool(uint32_t)>;

const std::vector<std::pair<std::string, Keeps>> kShapes = {
    {"none", [](uint32_t) { return false; }},
    {"all", [](uint32_t) { return true; }},
    {"rice", [](uint32_t i) { return i * 2654435761u % 1000 < 10; }},
    {"runs", [](uint32_t i) { return i % 700 < 9; }},
    {"packed", [](uint32_t i) { return i % 128 == 3; }},
    {"raw", [](uint32_t i) { return i == 7 || i == 4090; }},
    {"bitmap", [](uint32_t i) { return i * 2654435761u % 10 < 5; }},
    {"mixed", [](uint32_t i) { return i / 4096 == 1 || i % 900 == 0; }},
};

void Write(const std::string& path, uint32_t entries, const Keeps& keeps,
           ValueCode code) {
  std::vector<float> values(entries);
  for (uint32_t i = 0; i < entries; ++i) {
    if (keeps(i)) values[i] = i % 3 == 0 ? -1.5f : 0.75f;
  }
  const Compression compression{SelectionRule::Threshold(0), code};
  std::vector<std::byte> out(compression.MaxBytes(entries));
  Workspace workspace;
  const auto emitted = Compress(values, {}, compression, workspace, out);
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&entries), sizeof(entries));
  file.write(reinterpret_cast<const char*>(out.data()),
             static_cast<std::streamsize>(emitted->bytes));
}

}  // namespace
}  // namespace tensorlightning

int main(int argc, char** argv) {
  using namespace tensorlightning;  // NOLINT: a program of one function.
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds <absolute folder>\n");
    return 1;
  }
  for (const auto& [name, keeps] : kShapes) {
    for (const auto code :
         {ValueCode::kFloat32, ValueCode::kBfloat16, ValueCode::kBits8,
          ValueCode::kBits4, ValueCode::kBits2}) {
      const bool large = name == "mixed";
      const uint32_t entries = large ? 12000 : 4100;
      // Dense codes of wide values are long and show nothing new.
      if (ValueBits(code) > 4 && name != "raw" && name != "rice") continue;
      Write(std::string(argv[1]) + "/" + name + "_" +
                std::to_string(ValueBits(code)),
            entries, keeps, code);
    }
  }
}
