#include "comm/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace tensorlightning {
namespace {

using Bytes = std::vector<std::byte>;

Bytes RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void ExpectBoth(std::span<const std::byte> bytes, uint32_t crc) {
  EXPECT_EQ(Crc32c(bytes), crc);
  EXPECT_EQ(Crc32cPortable(bytes), crc);
}

TEST(Crc32c, IsThatOfRfc3720) {
  ExpectBoth(Bytes(32), 0x8a9136aa);
  ExpectBoth(Bytes(32, std::byte{0xff}), 0x62a8ab43);
  Bytes rising(32);
  for (size_t i = 0; i < rising.size(); ++i)
    rising[i] = static_cast<std::byte>(i);
  ExpectBoth(rising, 0x46dd794e);
  ExpectBoth(Bytes(rising.rbegin(), rising.rend()), 0x113fdb5c);
}

TEST(Crc32c, IsThatOfTheCatalogue) {
  const std::string_view check = "123456789";
  ExpectBoth(std::as_bytes(std::span(check)), 0xe3069283);
}

TEST(Crc32c, OfNothingIsWhatCameBefore) {
  ExpectBoth({}, 0);
  EXPECT_EQ(Crc32c({}, 0x12345678), 0x12345678u);
  EXPECT_EQ(Crc32cPortable({}, 0x12345678), 0x12345678u);
}

// One bit at a time, from the definition: shares no table with the rest.
uint32_t BitByBit(std::span<const std::byte> bytes) {
  uint32_t crc = ~0u;
  for (const std::byte byte : bytes) {
    crc ^= static_cast<uint32_t>(byte);
    for (int i = 0; i < 8; ++i) {
      crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82f63b78 : crc >> 1;
    }
  }
  return ~crc;
}

TEST(Crc32c, AgreesWithTheDefinitionForEveryShortLengthAndMisalignment) {
  const Bytes bytes = RandomBytes(320, 1);
  for (size_t offset = 0; offset < 16; ++offset) {
    for (size_t size = 0; size <= 300; ++size) {
      const auto part = std::span(bytes).subspan(offset, size);
      const uint32_t wanted = BitByBit(part);
      ASSERT_EQ(Crc32c(part), wanted) << offset << ", " << size;
      ASSERT_EQ(Crc32cPortable(part), wanted) << offset << ", " << size;
    }
  }
}

// Around the lengths at which streams are joined, 384, 4032 and 64512 bytes,
// and their multiples.
TEST(Crc32c, AgreesWithPortableWhereStreamsMeet) {
  const Bytes bytes = RandomBytes(300'000, 2);
  for (const size_t unit :
       {size_t{384}, size_t{4032}, size_t{4096}, size_t{64'512}}) {
    for (size_t times = 1; times <= 4; ++times) {
      for (size_t size = unit * times - 10; size <= unit * times + 10; ++size) {
        const auto part = std::span(bytes).subspan(size % 8, size);
        ASSERT_EQ(Crc32c(part, 77), Crc32cPortable(part, 77)) << size;
      }
    }
  }
}

TEST(Crc32c, AgreesWithPortableOnLongBuffers) {
  std::mt19937_64 random(3);
  const Bytes bytes = RandomBytes(1 << 20, 3);
  for (int i = 0; i < 30; ++i) {
    const size_t offset = random() % 5000;
    const size_t size = random() % (bytes.size() - offset);
    const auto part = std::span(bytes).subspan(offset, size);
    const auto before = static_cast<uint32_t>(random());
    ASSERT_EQ(Crc32c(part, before), Crc32cPortable(part, before)) << size;
  }
}

TEST(Crc32c, OfPartsOneAfterAnotherIsThatOfTheWhole) {
  std::mt19937_64 random(4);
  const Bytes bytes = RandomBytes(100000, 4);
  const uint32_t whole = Crc32c(bytes);
  for (int i = 0; i < 200; ++i) {
    // Short and long parts alike.
    const size_t longest = size_t{1} << (random() % 17);
    uint32_t crc = 0;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min(1 + random() % longest, bytes.size() - at);
      const auto part = std::span(bytes).subspan(at, size);
      crc = i % 2 == 0 ? Crc32c(part, crc) : Crc32cPortable(part, crc);
      at += size;
    }
    ASSERT_EQ(crc, whole) << "parts of up to " << longest;
  }
}

TEST(Crc32c, NoticesEveryFlippedBitOfAFrame) {
  Bytes bytes = RandomBytes(4100, 5);
  const uint32_t crc = Crc32c(bytes);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    const auto mask = static_cast<std::byte>(1 << (bit % 8));
    bytes[bit / 8] ^= mask;
    ASSERT_NE(Crc32c(bytes), crc) << "bit " << bit;
    bytes[bit / 8] ^= mask;
  }
}

}  // namespace
}  // namespace tensorlightning
