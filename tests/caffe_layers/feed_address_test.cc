#include "caffe_layers/feed_address.h"

#include <gtest/gtest.h>

#include <string>

namespace tensorlightning {
namespace {

std::string Read(std::string_view source, int32_t rank = 3) {
  const Result<Endpoint> endpoint = FeedAddress(source, rank, 8);
  return endpoint.ok() ? endpoint->ToString()
                       : "error: " + endpoint.error().message;
}

TEST(FeedAddress, IsUnixOrTcp) {
  EXPECT_EQ(Read("unix:/tmp/feed.sock"), "unix:/tmp/feed.sock");
  EXPECT_EQ(Read("tcp:host:7100"), "host:7100");
  EXPECT_EQ(Read("tcp:[fd00::5]:7100"), "[fd00::5]:7100");
}

TEST(FeedAddress, FillsInRankAndSize) {
  EXPECT_EQ(Read("unix:/tmp/{rank}.of.{size}"), "unix:/tmp/3.of.8");
  EXPECT_EQ(Read("tcp:host:71{rank}{rank}"), "host:7133");
}

TEST(FeedAddress, NamesWhatIsWrong) {
  EXPECT_NE(Read("unix:/tmp/{rank}", -1).find("TL_RANK does not say"),
            std::string::npos);
  for (const char* wrong :
       {"", "train_lmdb", "host:7100", "tcp:host",
        "tcp:", "unix:", "tcp:host:port", "tcp:host:70000", "tcp:unix:/tmp/x",
        "unix:/{ranks}", "unix:/{rank", "unix:/{"}) {
    EXPECT_TRUE(Read(wrong).starts_with("error: source: \"" +
                                        std::string(wrong) + "\": "))
        << wrong << " " << Read(wrong);
  }
}

}  // namespace
}  // namespace tensorlightning
