#include "caffe_layers/feed_format.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

namespace tensorlightning {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::array<char, 4> kMagic = {'T', 'L', 'F', 'D'};
constexpr uint16_t kVersion = 1;
constexpr size_t kMostTops = 16;
constexpr size_t kMostDimensions = 8;
constexpr uint32_t kMostRecords = 1u << 24;
constexpr uint32_t kMostText = 4096;

enum class Kind : uint8_t {
  kRecords = 1,
  kEndOfEpoch = 2,
  kEndOfData = 3,
  kFailure = 4,
};

struct Hello {
  std::array<char, 4> magic;
  uint16_t version;
  uint8_t tops;
  uint8_t zero;
};
static_assert(sizeof(Hello) == 8);

struct TopHeader {
  uint8_t type;
  uint8_t dimensions;
  uint16_t zero;
};
static_assert(sizeof(TopHeader) == 4);

struct FrameHeader {
  uint8_t kind;
  std::array<uint8_t, 3> zero;
  uint32_t count;
};
static_assert(sizeof(FrameHeader) == 8);

Error Corrupt(std::string message) {
  return {ErrorCode::kCorrupt, std::move(message)};
}

Error In(const std::string& where, const Error& error) {
  return {error.code, where + ": " + error.message};
}

template <typename T>
Status ReadStruct(FeedSource& source, T& value) {
  return source.Read(std::as_writable_bytes(std::span(&value, 1)));
}

// What a stranger has written, for a terminal.
std::string Printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(),
      [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

}  // namespace

std::string ToString(const FeedShape& shape) {
  if (shape.empty()) return "1 value";
  std::string text;
  for (const uint32_t dimension : shape) {
    text += (text.empty() ? "" : "x") + std::to_string(dimension);
  }
  return text;
}

// ---- The hello. -------------------------------------------------------------

Result<FeedReader> FeedReader::Open(FeedSource& source,
                                    std::span<const FeedShape> shapes) {
  FeedReader reader(source);
  const Status status = reader.ReadHello(shapes);
  if (!status.ok()) return In("the feeder's hello", status.error());
  return reader;
}

Status FeedReader::ReadHello(std::span<const FeedShape> shapes) {
  Hello hello;
  Status status = ReadStruct(*source_, hello);
  if (!status.ok()) return status;
  if (hello.magic != kMagic) {
    return Corrupt("it does not begin with TLFD, so this is no feeder");
  }
  if (hello.version != kVersion) {
    return Error{ErrorCode::kRefused,
                 "it speaks version " + std::to_string(hello.version) +
                     " of the format, and this layer version " +
                     std::to_string(kVersion)};
  }
  if (hello.tops == 0 || hello.tops > kMostTops || hello.zero != 0) {
    return Corrupt("records of " + std::to_string(hello.tops) +
                   " tops; there are 1 to " + std::to_string(kMostTops));
  }
  if (hello.tops != shapes.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 "its records have " + std::to_string(hello.tops) +
                     " tops, and this layer has " +
                     std::to_string(shapes.size())};
  }
  for (size_t top = 0; top < shapes.size() && status.ok(); ++top) {
    status = ReadTop(top, shapes[top]);
  }
  return status;
}

Status FeedReader::ReadTop(size_t top, const FeedShape& expected) {
  const std::string name = "top " + std::to_string(top);
  TopHeader header;
  Status status = ReadStruct(*source_, header);
  if (!status.ok()) return status;
  if (header.type > static_cast<uint8_t>(Type::kUint8)) {
    return Corrupt(name + " has type " + std::to_string(header.type) +
                   "; 0 is float32, 1 is uint8");
  }
  if (header.dimensions > kMostDimensions || header.zero != 0) {
    return Corrupt(name + " has " + std::to_string(header.dimensions) +
                   " dimensions; there are 0 to " +
                   std::to_string(kMostDimensions));
  }
  FeedShape shape(header.dimensions);
  status = source_->Read(std::as_writable_bytes(std::span(shape)));
  if (!status.ok()) return status;
  if (shape != expected) {
    return Error{ErrorCode::kInvalidArgument,
                 name + " is " + ToString(shape) +
                     ", and the net says that it is " + ToString(expected)};
  }
  types_.push_back(static_cast<Type>(header.type));
  return Done{};
}

// ---- Frames. ----------------------------------------------------------------

Result<FeedReader::Item> FeedReader::Next(
    std::span<const std::span<float>> tops) {
  if (left_ == 0) return ReadFrame(tops);
  const Status status = ReadRecord(tops);
  if (!status.ok()) return status.error();
  return Item::kRecord;
}

Result<FeedReader::Item> FeedReader::ReadFrame(
    std::span<const std::span<float>> tops) {
  const std::string where = "after record " + std::to_string(records_);
  FrameHeader header;
  const Status status = ReadStruct(*source_, header);
  if (!status.ok()) return In(where, status.error());
  const Kind kind{header.kind};
  const bool is_end = kind == Kind::kEndOfEpoch || kind == Kind::kEndOfData;
  if (header.kind == 0 || kind > Kind::kFailure || header.zero[0] != 0 ||
      header.zero[1] != 0 || header.zero[2] != 0) {
    return Corrupt(where +
                   ": no frame begins like this: are the records as "
                   "long as the hello says?");
  }
  if (is_end != (header.count == 0) ||
      (kind == Kind::kRecords && header.count > kMostRecords) ||
      (kind == Kind::kFailure && header.count > kMostText)) {
    return Corrupt(where + ": a frame of kind " + std::to_string(header.kind) +
                   " with a count of " + std::to_string(header.count));
  }
  if (kind == Kind::kFailure) return In(where, ReadFailure(header.count));
  if (kind == Kind::kEndOfData) return Item::kEndOfData;
  if (kind == Kind::kRecords) {
    left_ = header.count;
    return Next(tops);
  }
  if (std::exchange(records_before_epoch_, records_) == records_) {
    return Corrupt(where + ": an epoch without records");
  }
  ++epochs_;
  return Item::kEndOfEpoch;
}

Error FeedReader::ReadFailure(uint32_t length) {
  std::string text(length, ' ');
  const Status status = source_->Read(std::as_writable_bytes(std::span(text)));
  if (!status.ok()) return status.error();
  return {ErrorCode::kRefused, "the feeder has failed: " + Printable(text)};
}

Status FeedReader::ReadRecord(std::span<const std::span<float>> tops) {
  const std::string where = "record " + std::to_string(records_ + 1);
  for (size_t top = 0; top < tops.size(); ++top) {
    const Status status = ReadValues(top, tops[top]);
    if (!status.ok()) return In(where, status.error());
  }
  --left_;
  ++records_;
  return Done{};
}

Status FeedReader::ReadValues(size_t top, std::span<float> values) {
  if (types_[top] == Type::kUint8) {
    scratch_.resize(values.size());
    Status status = source_->Read(scratch_);
    if (!status.ok()) return status;
    std::transform(scratch_.begin(), scratch_.end(), values.begin(),
                   [](std::byte b) { return std::to_integer<uint8_t>(b); });
    return Done{};
  }
  Status status = source_->Read(std::as_writable_bytes(values));
  if (!status.ok()) return status;
  const auto bad = std::find_if(values.begin(), values.end(),
                                [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return Done{};
  return Error{ErrorCode::kNotFinite,
               "value " + std::to_string(bad - values.begin()) + " of top " +
                   std::to_string(top) + " is " + std::to_string(*bad)};
}

}  // namespace tensorlightning
