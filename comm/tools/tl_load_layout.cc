#include "comm/tools/tl_load_layout.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tensorlightning {
namespace {

constexpr uint64_t kSmallest = 64;  // Below, one tensor will do.
constexpr uint64_t kWidest = 1024;  // So that biases are small tensors.
constexpr int kLayers = 4;

Error Bad(std::string_view text, const char* why) {
  return {ErrorCode::kInvalidArgument, "'" + std::string(text) + "' " + why};
}

// A whole number and what follows it.
std::optional<uint64_t> TakeNumber(std::string_view& text) {
  uint64_t number = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

// None: not of that form.
std::optional<uint64_t> ReadEntries(std::string_view text) {
  const std::optional<uint64_t> number = TakeNumber(text);
  if (!number.has_value() || *number > Layout::kMaxEntries) {
    return std::nullopt;
  }
  if (text.empty()) return *number;
  if (text == "k") return *number * 1'000;
  if (text == "M") return *number * 1'000'000;
  if (text == "G") return *number * 1'000'000'000;
  return std::nullopt;
}

std::vector<Tensor> PlausibleModel(uint64_t entries) {
  if (entries < kSmallest) return {{"weights", {entries}}};
  std::vector<Tensor> tensors;
  uint64_t left = entries;
  for (int layer = 1; layer <= kLayers; ++layer) {
    // Half of what is left, and in the last layer all of it.
    const uint64_t part = layer < kLayers ? left / 2 : left;
    const auto root = static_cast<uint64_t>(std::sqrt(part));
    const uint64_t columns = std::clamp<uint64_t>(root, 1, kWidest);
    const uint64_t rows = part / columns - 1;
    const std::string name = "layer" + std::to_string(layer);
    if (rows > 0) tensors.push_back({name + "/kernel", {rows, columns}});
    tensors.push_back({name + "/bias", {columns}});
    left -= (rows + 1) * columns;
  }
  if (left > 0) tensors.push_back({"scale", {left}});
  return tensors;
}

Result<Tensor> ReadTensor(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return Bad(text, "is neither a number of entries nor NAME:AxB");
  }
  Tensor tensor{std::string(text.substr(0, colon)), {}};
  std::string_view shape = text.substr(colon + 1);
  while (true) {
    const std::optional<uint64_t> size = TakeNumber(shape);
    if (!size.has_value()) return Bad(text, "has a size that is no number");
    tensor.shape.push_back(*size);
    if (shape.empty()) return tensor;
    if (shape.front() != 'x') return Bad(text, "has a shape that is not AxB");
    shape.remove_prefix(1);
  }
}

}  // namespace

Result<Layout> ParseLoadLayout(std::string_view text) {
  const std::optional<uint64_t> entries = ReadEntries(text);
  if (entries.has_value()) return Layout::Make(PlausibleModel(*entries));
  std::vector<Tensor> tensors;
  while (true) {
    const size_t comma = text.find(',');
    Result<Tensor> tensor = ReadTensor(text.substr(0, comma));
    if (!tensor.ok()) return tensor.error();
    tensors.push_back(std::move(*tensor));
    if (comma == std::string_view::npos) return Layout::Make(tensors);
    text.remove_prefix(comma + 1);
  }
}

}  // namespace tensorlightning
