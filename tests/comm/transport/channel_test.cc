#include "comm/transport/channel.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "comm/crc32c.h"
#include "comm/transport/thread_pool.h"

namespace tensorlightning {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience{60'000};

Bytes RandomBytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  Bytes bytes(n);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

// A frame as it is on the wire.
Bytes WireBytes(const Bytes& payload) {
  FrameHeader header{FrameType::kPush};
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  const FrameHeaderBytes head = EncodeHeader(header);
  const uint32_t crc = Crc32c(payload);
  Bytes all(head.size() + payload.size() + sizeof(crc));
  std::copy(head.begin(), head.end(), all.begin());
  std::copy(payload.begin(), payload.end(), all.begin() + head.size());
  std::memcpy(all.data() + all.size() - sizeof(crc), &crc, sizeof(crc));
  return all;
}

// Two ends of a Unix socket, each a channel or, for mischief, a bare one.
struct ChannelTest : testing::Test {
  ChannelTest() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0); }
  ~ChannelTest() override {
    pool.Stop();
    for (const int fd : fds) {
      if (fd >= 0) ::close(fd);
    }
  }

  std::shared_ptr<Channel> MakeEnd(int which, size_t queue = 64,
                                   Timeouts timeouts = {}) {
    const Strand strand = pool.MakeStrand();
    Socket socket(strand, asio::local::stream_protocol(), fds[which]);
    fds[which] = -1;
    return Channel::Make(strand, std::move(socket), timeouts, pool.watchdog(),
                         queue);
  }

  template <typename Work>
  static void On(const std::shared_ptr<Channel>& channel, Work work) {
    std::promise<void> done;
    asio::post(channel->strand(), [&] {
      work();
      done.set_value();
    });
    done.get_future().wait();
  }

  // The next frame, payload and all.
  struct Frame {
    FrameHeader header;
    Bytes payload;
  };
  static Awaitable<void> ReadFrame(std::shared_ptr<Channel> channel,
                                   milliseconds patience,
                                   std::promise<Result<Frame>>& out) {
    const Result<FrameHeader> header = co_await channel->ReadHeader(patience);
    if (!header.ok()) {
      out.set_value(header.error());
      co_return;
    }
    Frame frame{*header, Bytes(header->payload_bytes)};
    const Status read = co_await channel->ReadPayload(frame.payload);
    if (read.ok()) {
      out.set_value(std::move(frame));
    } else {
      out.set_value(read.error());
    }
  }
  static Result<Frame> Read(const std::shared_ptr<Channel>& channel,
                            milliseconds patience = kPatience) {
    std::promise<Result<Frame>> out;
    asio::co_spawn(channel->strand(), ReadFrame(channel, patience, out),
                   asio::detached);
    return out.get_future().get();
  }

  ThreadPool pool{2};
  int fds[2];
};

TEST_F(ChannelTest, CarriesFramesOfAllSizesInOrder) {
  const auto sender = MakeEnd(0);
  const auto receiver = MakeEnd(1);
  const std::vector<size_t> sizes = {0,      1,      35,      36,     4096,
                                     8191,   8192,   8193,    262143, 262144,
                                     262145, 300000, 1 << 20, 3,      5 << 20};
  std::vector<Bytes> payloads;
  payloads.reserve(sizes.size());
  for (const size_t size : sizes) {
    payloads.push_back(RandomBytes(size, static_cast<uint32_t>(size)));
  }
  std::atomic<int> sent{0};
  On(sender, [&] {
    sender->OnSent([&](const FrameHeader&) { ++sent; });
    for (size_t i = 0; i < sizes.size(); ++i) {
      FrameHeader header{FrameType::kPush};
      header.sequence = i;
      // Some owned, some borrowed, some with a prefix.
      bool queued = false;
      if (i % 3 == 0) {
        queued = sender->Send(header, payloads[i]);
      } else if (i % 3 == 1) {
        queued = sender->SendBorrowed(header, payloads[i]);
      } else {
        queued = sender->SendBorrowed(header, Standing{7, 8, 9}.Encode(),
                                      payloads[i]);
      }
      ASSERT_TRUE(queued);
    }
  });
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Result<Frame> frame = Read(receiver);
    ASSERT_TRUE(frame.ok()) << frame.error().message;
    EXPECT_EQ(frame->header.sequence, i);
    const size_t prefix = i % 3 == 2 ? Standing::kBytes : 0;
    ASSERT_EQ(frame->payload.size(), prefix + sizes[i]);
    EXPECT_TRUE(std::equal(payloads[i].begin(), payloads[i].end(),
                           frame->payload.begin() + prefix));
    if (prefix > 0) {
      EXPECT_EQ(*Standing::Parse(frame->payload), (Standing{7, 8, 9}));
    }
  }
  On(sender, [&] { EXPECT_EQ(sent.load(), static_cast<int>(sizes.size())); });
  EXPECT_EQ(sender->bytes_sent(), receiver->bytes_received());
}

TEST_F(ChannelTest, NoticesAFlippedBit) {
  const auto receiver = MakeEnd(1);
  Bytes all = WireBytes(RandomBytes(1000, 1));
  all[500] ^= std::byte{4};
  ASSERT_EQ(::write(fds[0], all.data(), all.size()), 1040);
  const Result<Frame> frame = Read(receiver);
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, ErrorCode::kCorrupt);
}

TEST_F(ChannelTest, ReadsFramesThatComeByteByByte) {
  const auto receiver = MakeEnd(1);
  const Bytes payload = RandomBytes(50, 1);
  const Bytes all = WireBytes(payload);
  std::thread writer([&] {
    for (const std::byte byte : all) {
      ASSERT_EQ(::write(fds[0], &byte, 1), 1);
      std::this_thread::yield();
    }
  });
  const Result<Frame> frame = Read(receiver);
  writer.join();
  ASSERT_TRUE(frame.ok()) << frame.error().message;
  EXPECT_EQ(frame->payload, payload);
}

TEST_F(ChannelTest, SaysThatTheOtherEndIsGone) {
  const auto receiver = MakeEnd(1);
  ::close(fds[0]);
  fds[0] = -1;
  const Result<Frame> frame = Read(receiver);
  ASSERT_FALSE(frame.ok());
  EXPECT_EQ(frame.error().code, ErrorCode::kIo);
  EXPECT_NE(frame.error().message.find("closed the connection"),
            std::string::npos);
}

TEST_F(ChannelTest, GivesUpOnSilenceAndOnHalfAFrame) {
  Timeouts timeouts;
  timeouts.progress = milliseconds(200);
  const auto receiver = MakeEnd(1, 4, timeouts);
  const FrameHeaderBytes head = EncodeHeader({FrameType::kPing});
  ASSERT_EQ(::write(fds[0], head.data(), 20), 20);
  const Result<Frame> half = Read(receiver);
  ASSERT_FALSE(half.ok());
  EXPECT_EQ(half.error().code, ErrorCode::kTimedOut);

  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const Result<Frame> silence = Read(MakeEnd(1), milliseconds(200));
  ASSERT_FALSE(silence.ok());
  EXPECT_EQ(silence.error().code, ErrorCode::kTimedOut);
}

TEST_F(ChannelTest, AHandshakeThatDripsIsCutOff) {
  const auto receiver = MakeEnd(1);
  On(receiver, [&] { receiver->EstablishWithin(milliseconds(300)); });
  std::atomic<bool> stop{false};
  std::thread dripping([&] {
    const std::byte byte{};
    while (!stop.load()) {
      if (::send(fds[0], &byte, 1, MSG_NOSIGNAL) != 1) break;
      std::this_thread::sleep_for(milliseconds(20));
    }
  });
  // No byte is ever late, and still it does not go on for ever.
  Result<Frame> frame = Read(receiver);
  while (frame.ok() || frame.error().code == ErrorCode::kCorrupt) {
    frame = Read(receiver);
  }
  EXPECT_EQ(frame.error().code, ErrorCode::kTimedOut);
  stop.store(true);
  dripping.join();
}

TEST_F(ChannelTest, AReaderThatNeverReadsIsDroppedAndTheQueueIsBounded) {
  Timeouts timeouts;
  timeouts.progress = milliseconds(300);
  const auto sender = MakeEnd(0, 8, timeouts);
  const Bytes payload = RandomBytes(1 << 20, 1);
  int queued = 0;
  On(sender, [&] {
    while (sender->SendBorrowed({FrameType::kState}, payload)) ++queued;
  });
  EXPECT_EQ(queued, 8);
  EXPECT_TRUE(sender->closed());

  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const auto patient = MakeEnd(0, 8, timeouts);
  On(patient, [&] { patient->SendBorrowed({FrameType::kState}, payload); });
  const auto until = std::chrono::steady_clock::now() + kPatience;
  bool closed = false;
  while (!closed && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(milliseconds(20));
    On(patient, [&] { closed = patient->closed(); });
  }
  ASSERT_TRUE(closed);
  EXPECT_EQ(patient->why().code, ErrorCode::kTimedOut);
}

TEST_F(ChannelTest, ClosingAfterSendingStillSaysTheLastWord) {
  const auto sender = MakeEnd(0);
  const auto receiver = MakeEnd(1);
  On(sender, [&] {
    sender->Send({FrameType::kError}, RandomBytes(100, 1));
    sender->CloseAfterSending({ErrorCode::kIo, "that was it"});
    EXPECT_FALSE(sender->Send({FrameType::kPing}));
  });
  EXPECT_TRUE(Read(receiver).ok());
  EXPECT_FALSE(Read(receiver).ok());
}

TEST_F(ChannelTest, ClosingAfterSendingNeverReadsBorrowedMemoryAgain) {
  const auto sender = MakeEnd(0);
  auto lent = std::make_unique<Bytes>(RandomBytes(8 << 20, 1));
  On(sender, [&] {
    sender->SendBorrowed({FrameType::kState}, *lent);
    sender->CloseAfterSending({ErrorCode::kIo, "that was it"});
    EXPECT_TRUE(sender->closed());
    lent.reset();
  });
}

}  // namespace
}  // namespace tensorlightning
