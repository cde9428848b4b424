#include "caffe_layers/feed_format.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "tests/caffe_layers/feed_bytes.h"

namespace tensorlightning {
namespace {

using Item = FeedReader::Item;

// Images of 2x2 bytes, and labels.
const std::vector<FeedShape> kShapes = {{2, 2}, {}};
const std::string kHello =
    HelloBytes(2) + TopBytes(1, {2, 2}) + TopBytes(0, {});

std::string RecordBytes(float label) {
  return std::string("\x00\x01\x7f\xff", 4) + Bytes(label);
}

// The items of a whole feed, or how it went wrong.
struct Feed {
  explicit Feed(const std::string& bytes) {
    MemorySource source(bytes);
    Result<FeedReader> reader = FeedReader::Open(source, kShapes);
    if (!reader.ok()) {
      error = reader.error();
      return;
    }
    const std::array<std::span<float>, 2> tops = {image, label};
    while (items.empty() || items.back() != Item::kEndOfData) {
      const Result<Item> item = reader->Next(tops);
      if (!item.ok()) {
        error = item.error();
        return;
      }
      items.push_back(*item);
      if (*item == Item::kRecord) labels.push_back(label[0]);
    }
    epochs = reader->epochs();
  }

  std::array<float, 4> image{};
  std::array<float, 1> label{};
  std::vector<Item> items;
  std::vector<float> labels;
  uint64_t epochs = 0;
  Error error{ErrorCode::kUnavailable, ""};
};

TEST(FeedReader, GivesRecordsAndMarkersInTheirOrder) {
  const Feed feed(kHello + FrameBytes(1, 2) + RecordBytes(1) + RecordBytes(2) +
                  FrameBytes(2, 0) + FrameBytes(1, 1) + RecordBytes(3) +
                  FrameBytes(2, 0) + FrameBytes(3, 0));
  EXPECT_EQ(feed.error.message, "");
  EXPECT_EQ(feed.items,
            (std::vector{Item::kRecord, Item::kRecord, Item::kEndOfEpoch,
                         Item::kRecord, Item::kEndOfEpoch, Item::kEndOfData}));
  EXPECT_EQ(feed.labels, (std::vector{1.0f, 2.0f, 3.0f}));
  EXPECT_EQ(feed.image, (std::array{0.0f, 1.0f, 127.0f, 255.0f}));
  EXPECT_EQ(feed.epochs, 2u);
}

TEST(FeedReader, NamesWhatIsWrongWithTheHello) {
  const auto error = [](const std::string& bytes) {
    return Feed(bytes).error.message;
  };
  EXPECT_EQ(error("GET / HTTP/1.1"),
            "the feeder's hello: it does not begin with TLFD, so this is no "
            "feeder");
  EXPECT_EQ(error("TLF"), "the feeder's hello: closed");
  std::string newer = kHello;
  newer[4] = 2;
  EXPECT_NE(error(newer).find("speaks version 2"), std::string::npos);
  EXPECT_NE(error(HelloBytes(3)).find("3 tops, and this layer has 2"),
            std::string::npos);
  EXPECT_NE(error(HelloBytes(0)).find("records of 0 tops"), std::string::npos);
  EXPECT_NE(error(HelloBytes(2) + TopBytes(1, {2, 3}))
                .find("top 0 is 2x3, and the net says that it is 2x2"),
            std::string::npos);
  EXPECT_NE(error(HelloBytes(2) + TopBytes(0, {2, 2}) + TopBytes(0, {1}))
                .find("top 1 is 1, and the net says that it is 1 value"),
            std::string::npos);
  EXPECT_NE(error(HelloBytes(2) + TopBytes(2, {2, 2})).find("has type 2"),
            std::string::npos);
  EXPECT_NE(error(HelloBytes(2) + TopBytes(0, FeedShape(9, 1)))
                .find("has 9 dimensions"),
            std::string::npos);
}

TEST(FeedReader, RefusesFramesThatNoFeederWrites) {
  std::string padded = FrameBytes(1, 1);
  padded[2] = 1;
  for (const std::string& frame :
       {FrameBytes(0, 1), FrameBytes(5, 1), FrameBytes(1, 0),
        FrameBytes(1, (1u << 24) + 1), FrameBytes(1, 0xffffffff),
        FrameBytes(2, 1), FrameBytes(3, 1), FrameBytes(4, 0),
        FrameBytes(4, 4097), padded}) {
    std::string bytes = kHello + FrameBytes(1, 1);
    bytes += RecordBytes(1);
    bytes += frame;
    const Feed feed(bytes);
    EXPECT_EQ(feed.error.code, ErrorCode::kCorrupt);
    EXPECT_TRUE(feed.error.message.starts_with("after record 1: "));
  }
}

TEST(FeedReader, SaysWhereAConnectionWasClosed) {
  EXPECT_EQ(Feed(kHello).error.message, "after record 0: closed");
  const std::string two = kHello + FrameBytes(1, 2) + RecordBytes(1);
  EXPECT_EQ(Feed(two).error.message, "record 2: closed");
  EXPECT_EQ(Feed(two + RecordBytes(2).substr(0, 5)).error.message,
            "record 2: closed");
  EXPECT_EQ(Feed(two).error.code, ErrorCode::kIo);
}

TEST(FeedReader, RefusesWhatIsNoNumber) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(),
                          -std::numeric_limits<float>::infinity()}) {
    const Feed feed(kHello + FrameBytes(1, 1) + RecordBytes(bad));
    EXPECT_EQ(feed.error.code, ErrorCode::kNotFinite);
    EXPECT_TRUE(
        feed.error.message.starts_with("record 1: value 0 of top 1 is "));
  }
}

TEST(FeedReader, RefusesAnEpochWithoutRecords) {
  const std::string begin = kHello + FrameBytes(1, 1) + RecordBytes(1);
  EXPECT_EQ(Feed(kHello + FrameBytes(2, 0)).error.message,
            "after record 0: an epoch without records");
  EXPECT_EQ(Feed(begin + FrameBytes(2, 0) + FrameBytes(2, 0)).error.message,
            "after record 1: an epoch without records");
}

TEST(FeedReader, ShowsWhyAFeederHasFailed) {
  const Feed feed(kHello + FrameBytes(4, 6) + "no\n\x1bgo");
  EXPECT_EQ(feed.error.message,
            "after record 0: the feeder has failed: no  go");
  EXPECT_EQ(feed.error.code, ErrorCode::kRefused);
}

}  // namespace
}  // namespace tensorlightning
