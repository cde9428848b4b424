// What a feeder sends to the layer SocketData, over a socket. Little-endian;
// the layer sends nothing. First a hello:
//
//   char[4] "TLFD"   u16 version, 1   u8 tops, 1 to 16   u8 0
//   of each top:  u8 type   u8 dimensions, 0 to 8   u16 0   u32[dimensions]
//
// Types: 0 is float32, 1 is uint8. Dimensions are those of one record: 1 28 28
// of an image, none of a label. Then frames, each with a header of 8 bytes:
//
//   u8 kind   u8[3] 0   u32 count
//
//   1 records       count of them follow, 1 to 2^24; each has the values of its
//                   first top, then of its second ...
//   2 end of epoch  count is 0; there were records since the last one.
//   3 end of data   count is 0; nothing follows.
//   4 failure       count bytes of text follow, 1 to 4096: why there is no
//   more.
//
// Knows no Caffe and no sockets. Bytes are checked before they are believed.
#ifndef TENSORLIGHTNING_CAFFE_LAYERS_FEED_FORMAT_H_
#define TENSORLIGHTNING_CAFFE_LAYERS_FEED_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

// Where the bytes come from.
class FeedSource {
 public:
  virtual ~FeedSource() = default;
  // Fills all of it, or says why not: kIo when the other side has closed.
  virtual Status Read(std::span<std::byte> bytes) = 0;
  // From any thread: Read() fails soon, now and later.
  virtual void Shut() = 0;
};

// Of one record's top: dimensions without the batch's.
using FeedShape = std::vector<uint32_t>;

// "1x28x28"; of a single value "1 value".
std::string ToString(const FeedShape& shape);

class FeedReader {
 public:
  // Reads the hello. An error unless it announces just these shapes.
  static Result<FeedReader> Open(FeedSource& source,
                                 std::span<const FeedShape> shapes);

  enum class Item { kRecord, kEndOfEpoch, kEndOfData };
  // The next one; a record's values go into `tops`. Nothing follows an error or
  // the end of data.
  Result<Item> Next(std::span<const std::span<float>> tops);

  uint64_t records() const { return records_; }
  uint64_t epochs() const { return epochs_; }  // That have ended.

 private:
  enum class Type : uint8_t { kFloat32 = 0, kUint8 = 1 };

  explicit FeedReader(FeedSource& source) : source_(&source) {}

  Status ReadHello(std::span<const FeedShape> shapes);
  Status ReadTop(size_t top, const FeedShape& expected);
  Result<Item> ReadFrame(std::span<const std::span<float>> tops);
  Status ReadRecord(std::span<const std::span<float>> tops);
  Status ReadValues(size_t top, std::span<float> values);
  Error ReadFailure(uint32_t length);

  FeedSource* source_;
  std::vector<Type> types_;
  std::vector<std::byte> scratch_;
  uint32_t left_ = 0;  // Records of this frame.
  uint64_t records_ = 0;
  uint64_t records_before_epoch_ = 0;
  uint64_t epochs_ = 0;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_CAFFE_LAYERS_FEED_FORMAT_H_
