// Any bytes from a feeder: an error, or records of finite numbers. The first
// byte says what the net expects.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "caffe_layers/feed_format.h"
#include "tests/caffe_layers/feed_bytes.h"

namespace tensorlightning {
namespace {

void Check(bool holds) {
  if (!holds) std::abort();
}

const std::vector<std::vector<FeedShape>> kNets = {
    {{}}, {{2, 2}, {}}, {{1, 3, 2}, {2}, {}}};

void Read(const std::vector<FeedShape>& shapes, std::string_view bytes) {
  MemorySource source(bytes);
  Result<FeedReader> reader = FeedReader::Open(source, shapes);
  if (!reader.ok()) {
    Check(reader.error().message.starts_with("the feeder's hello: "));
    return;
  }
  std::vector<std::vector<float>> values;
  for (const FeedShape& shape : shapes) {
    size_t number = 1;
    for (const uint32_t dimension : shape) number *= dimension;
    values.emplace_back(number);
  }
  const std::vector<std::span<float>> tops(values.begin(), values.end());
  uint64_t records = 0;
  uint64_t epochs = 0;
  while (true) {
    const Result<FeedReader::Item> item = reader->Next(tops);
    if (!item.ok()) {
      Check(item.error().message.find(": ") != std::string::npos);
      return;
    }
    if (*item == FeedReader::Item::kEndOfData) return;
    if (*item == FeedReader::Item::kEndOfEpoch) {
      ++epochs;
    } else {
      ++records;
      for (const std::span<float> top : tops) {
        for (const float value : top) Check(std::isfinite(value));
      }
    }
    Check(reader->records() == records && reader->epochs() == epochs);
    Check(epochs <= records);
  }
}

}  // namespace
}  // namespace tensorlightning

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  using tensorlightning::kNets;
  tensorlightning::Read(kNets[data[0] % kNets.size()],
                        {reinterpret_cast<const char*>(data + 1), size - 1});
  return 0;
}
