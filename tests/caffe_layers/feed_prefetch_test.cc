#include "caffe_layers/feed_prefetch.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "caffe_layers/feed_socket.h"
#include "tests/caffe_layers/feed_bytes.h"

namespace tensorlightning {
namespace {

using std::chrono::milliseconds;

const std::string kHello = HelloBytes(1) + TopBytes(0, {});

FeedPlan Plan(size_t batch, size_t ahead) { return {{{}}, batch, ahead}; }

std::string Numbers(int from, int to) {
  std::string bytes = FrameBytes(1, static_cast<uint32_t>(to - from));
  for (int i = from; i < to; ++i) bytes += Bytes(static_cast<float>(i));
  return bytes;
}

std::unique_ptr<FeedPrefetch> Start(const std::string& bytes, FeedPlan plan) {
  auto feed = FeedPrefetch::Start(std::make_unique<MemorySource>(bytes),
                                  std::move(plan));
  EXPECT_TRUE(feed.ok());
  return std::move(*feed);
}

TEST(FeedPrefetch, FillsBatchesFromFramesOfAnySizeAcrossEpochs) {
  const std::string bytes = kHello + Numbers(0, 3) + FrameBytes(2, 0) +
                            Numbers(3, 4) + Numbers(4, 8) + FrameBytes(2, 0) +
                            Numbers(8, 9) + FrameBytes(3, 0);
  const auto feed = Start(bytes, Plan(2, 2));
  const std::vector<uint64_t> epochs = {0, 1, 1, 1};
  for (size_t i = 0; i < epochs.size(); ++i) {
    const Result<const FeedBatch*> batch = feed->Next();
    ASSERT_TRUE(batch.ok());
    const auto first = static_cast<float>(2 * i);
    EXPECT_EQ((*batch)->tops[0], (std::vector{first, first + 1}));
    EXPECT_EQ((*batch)->epochs, epochs[i]);
  }
  const Result<const FeedBatch*> end = feed->Next();
  ASSERT_FALSE(end.ok());
  EXPECT_TRUE(end.error().message.starts_with(
      "the feeder has ended its data after 9 records, 1 of which do not fill "
      "a batch of 2"));
  EXPECT_FALSE(feed->Next().ok());
}

TEST(FeedPrefetch, GivesWhatCameBeforeAnErrorFirst) {
  const std::string bytes = kHello + Numbers(0, 4) + "junkjunk";
  const auto feed = Start(bytes, Plan(2, 8));
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(feed->Next().ok());
  EXPECT_TRUE(feed->Next().ok());
  EXPECT_FALSE(feed->Next().ok());
}

// Frames of one record, without end; counts what is read after the hello.
class EndlessSource final : public FeedSource {
 public:
  explicit EndlessSource(std::atomic<size_t>& records) : records_(records) {}

  Status Read(std::span<std::byte> bytes) override {
    if (hello_.Read(bytes).ok()) return Done{};
    const bool is_header = bytes.size() == 8;
    if (!is_header) ++records_;
    const std::string next = is_header ? FrameBytes(1, 1) : Bytes(0.0f);
    return MemorySource(next).Read(bytes);
  }
  void Shut() override {}

 private:
  MemorySource hello_{kHello};
  std::atomic<size_t>& records_;
};

TEST(FeedPrefetch, ReadsSoFarAheadAndNoFurther) {
  std::atomic<size_t> records = 0;
  auto feed = FeedPrefetch::Start(std::make_unique<EndlessSource>(records),
                                  Plan(/*batch=*/2, /*ahead=*/3));
  ASSERT_TRUE(feed.ok());
  const auto settles_at = [&](size_t count) {
    for (int i = 0; i < 500 && records < count; ++i) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    std::this_thread::sleep_for(milliseconds(50));
    return records == count;
  };
  EXPECT_TRUE(settles_at(6)) << records;
  EXPECT_TRUE((*feed)->Next().ok());
  EXPECT_TRUE(settles_at(8)) << records;
}

class Listener {
 public:
  Listener() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    // Short: Unix sockets take paths of 107 characters.
    path_ = "/tmp/tl-feed-" + std::to_string(getpid());
    unlink(path_.c_str());
    path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
    socket_ = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(
        bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
        0);
    EXPECT_EQ(listen(socket_, 1), 0);
  }
  ~Listener() {
    close(socket_);
    unlink(path_.c_str());
  }

  Endpoint endpoint() const { return {"", 0, path_}; }
  int Accept() const { return accept(socket_, nullptr, nullptr); }

 private:
  std::string path_;
  int socket_;
};

TEST(FeedSocket, EndsAWaitWhenItIsDestroyedOrTooLong) {
  const Listener listener;
  auto socket = FeedSocket::Connect(listener.endpoint(), milliseconds(5000));
  ASSERT_TRUE(socket.ok());
  const int other = listener.Accept();
  ASSERT_EQ(write(other, kHello.data(), kHello.size()),
            static_cast<ssize_t>(kHello.size()));
  const auto begin = std::chrono::steady_clock::now();
  {
    const auto feed = FeedPrefetch::Start(std::move(*socket), Plan(1, 1));
    ASSERT_TRUE(feed.ok());
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(4000));
  close(other);
}

TEST(FeedSocket, SaysThatNothingHasCome) {
  const Listener listener;
  auto socket = FeedSocket::Connect(listener.endpoint(), milliseconds(50));
  ASSERT_TRUE(socket.ok());
  std::array<std::byte, 8> bytes;
  const Status status = (*socket)->Read(bytes);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kTimedOut);
}

}  // namespace
}  // namespace tensorlightning
