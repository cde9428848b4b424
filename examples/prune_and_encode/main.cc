// Prunes and encodes a gradient at several densities and value codes, checks
// that nothing is lost, and prints what it cost as one JSON object.
//
//   prune_and_encode gradient.f32      raw float32, in this machine's order
//
// demo.py makes such a file from a real network and shows the result.
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "examples/prune_and_encode/measure.h"
#include "kernels/cpu/vector_ops.h"

namespace tl = tensorlightning;

namespace {

constexpr char kUsage[] =
    "usage: prune_and_encode FILE\n"
    "Compresses the raw float32 values of FILE at several densities and value\n"
    "codes, checks the round trip, and prints sizes and speeds as JSON.\n";

constexpr double kDensities[] = {0.001, 0.01, 0.03, 0.1};

constexpr struct {
  tl::ValueCode code;
  const char* name;
} kCodes[] = {{tl::ValueCode::kFloat32, "float32"},
              {tl::ValueCode::kBfloat16, "bfloat16"},
              {tl::ValueCode::kBits8, "8 bits"},
              {tl::ValueCode::kBits4, "4 bits"},
              {tl::ValueCode::kBits2, "2 bits"}};

tl::Result<std::vector<float>> Read(const std::string& path) {
  const auto bad = [&](const std::string& why) {
    return tl::Error{tl::ErrorCode::kInvalidArgument, path + why};
  };
  std::error_code failed;
  const auto bytes = std::filesystem::file_size(path, failed);
  if (failed) return bad(": " + failed.message());
  if (bytes == 0 || bytes % sizeof(float) != 0) {
    return bad(" has " + std::to_string(bytes) +
               " bytes, which is no array of float32 values");
  }
  std::vector<float> values(bytes / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(bytes));
  if (!file) return bad(" could not be read");
  return values;
}

struct Row {
  double density;
  tl::ValueCode code;
  const char* name;
  tl::examples::Cost cost;
};

void Print(size_t entries, const std::vector<Row>& rows) {
  const auto dense_bytes = static_cast<double>(entries * sizeof(float));
  const auto gb_per_s = [&](double seconds) {
    return dense_bytes / seconds / 1e9;
  };
  std::printf(R"({"entries": %zu, "dense_bytes": %zu, "instruction_set": "%s",)"
              "\n \"round_trip\": \"exact\", \"rows\": [",
              entries, entries * sizeof(float), tl::cpu::Ops().name);
  const char* separator = "\n  ";
  for (const auto& [density, code, name, cost] : rows) {
    std::fputs(separator, stdout);
    separator = ",\n  ";
    std::printf(
        R"({"density": %g, "code": "%s", "kept": %zu, "bytes": %zu, )"
        R"("times_smaller": %.2f, "gb_per_s": %.3f, "roof_gb_per_s": %.3f, )"
        R"("share_of_roof": %.3f, "value_bits": %u, "scale_bits": %.3f, )"
        R"("index_bits": %.3f, "entropy_bits": %.3f, "error": %.6f})",
        density, name, cost.kept, cost.bytes,
        dense_bytes / static_cast<double>(cost.bytes), gb_per_s(cost.seconds),
        gb_per_s(cost.roof_seconds), cost.roof_share, tl::ValueBits(code),
        cost.scale_bits, cost.index_bits, cost.entropy_bits, cost.error);
  }
  std::puts("\n]}");
}

int Fail(const std::string& why) {
  std::fprintf(stderr, "prune_and_encode: %s\n", why.c_str());
  return 1;
}

int Run(int argc, char** argv) {
  if (argc == 2 &&
      (std::string(argv[1]) == "--help" || std::string(argv[1]) == "-h")) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (argc != 2) return Fail(std::string("give one file\n") + kUsage);
  tl::Result<std::vector<float>> gradient = Read(argv[1]);
  if (!gradient.ok()) return Fail(gradient.error().message);
  // A residual that starts at +0 makes +0 of -0. So do we, to compare bits.
  for (float& value : *gradient) value += 0.0f;

  std::vector<Row> rows;
  for (const double density : kDensities) {
    for (const auto& [code, name] : kCodes) {
      const auto cost = tl::examples::Measure(*gradient, density, code);
      if (!cost.ok()) return Fail(cost.error().message);
      rows.push_back({density, code, name, *cost});
    }
  }
  Print(gradient->size(), rows);
  if (std::fflush(stdout) != 0) return Fail("the output can't be written");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // Out of memory.
    std::fprintf(stderr, "prune_and_encode: %s\n", error.what());
    return 1;
  }
}
