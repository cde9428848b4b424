#include "comm/endpoint.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace tensorlightning {
namespace {

Endpoint Tcp(std::string host, uint16_t port) {
  return {.host = std::move(host), .port = port, .unix_path = {}};
}

Endpoint Unix(std::string path) {
  return {.host = {}, .port = 0, .unix_path = std::move(path)};
}

struct Written {
  std::string text;
  Endpoint meant;
};

class WellWritten : public ::testing::TestWithParam<Written> {};

TEST_P(WellWritten, IsUnderstood) {
  const Result<Endpoint> parsed = Endpoint::Parse(GetParam().text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, GetParam().meant) << parsed->ToString();
}

TEST_P(WellWritten, ReadsTheSameWhenWrittenOut) {
  const std::string text = GetParam().meant.ToString();
  const Result<Endpoint> parsed = Endpoint::Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, GetParam().meant) << text;
}

INSTANTIATE_TEST_SUITE_P(
    Endpoints, WellWritten,
    ::testing::Values(
        Written{"host:7070", Tcp("host", 7070)},
        Written{"host", Tcp("host", kDefaultPort)},
        Written{"gpu-3.rack_2.example.com:9",
                Tcp("gpu-3.rack_2.example.com", 9)},
        Written{"localhost:0", Tcp("localhost", 0)},
        Written{"host:65535", Tcp("host", 65535)},
        Written{"10.0.0.5:7071", Tcp("10.0.0.5", 7071)},
        Written{"10.0.0.5", Tcp("10.0.0.5", kDefaultPort)},
        Written{"[fd00::5]:7071", Tcp("fd00::5", 7071)},
        Written{"[fd00::5]", Tcp("fd00::5", kDefaultPort)},
        Written{"[::1]:1", Tcp("::1", 1)}, Written{"[::]:0", Tcp("::", 0)},
        Written{"[fe80::1%eth0]:80", Tcp("fe80::1%eth0", 80)},
        // Without brackets, where no port can be meant.
        Written{"fd00::5", Tcp("fd00::5", kDefaultPort)},
        Written{"fd00::5:a", Tcp("fd00::5:a", kDefaultPort)},
        Written{"::1", Tcp("::1", kDefaultPort)},
        Written{"::", Tcp("::", kDefaultPort)},
        Written{"1:2:3:4:5:6:7:8", Tcp("1:2:3:4:5:6:7:8", kDefaultPort)},
        Written{"::ffff:10.0.0.5", Tcp("::ffff:10.0.0.5", kDefaultPort)},
        Written{"unix:/run/tl.sock", Unix("/run/tl.sock")},
        Written{"unix:relative", Unix("relative")},
        Written{"unix:/a:b:7070", Unix("/a:b:7070")},
        Written{"unix:" + std::string(107, 'x'), Unix(std::string(107, 'x'))},
        Written{"  host:1 \n", Tcp("host", 1)}));

TEST(Endpoint, IsWrittenWithBracketsAndPort) {
  EXPECT_EQ(Tcp("host", 7070).ToString(), "host:7070");
  EXPECT_EQ(Tcp("fd00::5", 0).ToString(), "[fd00::5]:0");
  EXPECT_EQ(Unix("/run/tl.sock").ToString(), "unix:/run/tl.sock");
}

struct Mistake {
  std::string text;
  std::string said;  // What the error must say.
};

class BadlyWritten : public ::testing::TestWithParam<Mistake> {};

TEST_P(BadlyWritten, IsRefusedWithTheReason) {
  const Result<Endpoint> parsed = Endpoint::Parse(GetParam().text);
  ASSERT_FALSE(parsed.ok()) << parsed->ToString();
  EXPECT_EQ(parsed.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(parsed.error().message.find(GetParam().said), std::string::npos)
      << parsed.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Endpoints, BadlyWritten,
    ::testing::Values(
        Mistake{"", "it is empty"}, Mistake{"  ", "it is empty"},
        Mistake{":7070", "host before the port is missing"},
        Mistake{"host:", "must follow the last colon"},
        Mistake{"host:65536", "'65536' is no number from 0 to 65535"},
        Mistake{"host:99999999999999999999", "is no number from 0 to 65535"},
        Mistake{"host:-1", "'-1' is no number"},
        Mistake{"host:+1", "'+1' is no number"},
        Mistake{"host: 1", "' 1' is no number"},
        Mistake{"host:http", "'http' is no number"},
        Mistake{"host:70x", "'70x' is no number"},
        Mistake{"7070", "localhost:7070"},
        Mistake{"10.0.0.256:7070", "no IPv4 address"},
        Mistake{"10.5:7070", "no IPv4 address"}, Mistake{"*:7070", "0.0.0.0"},
        Mistake{"a host:7070", "'a host' is no host name"},
        Mistake{"user@host:7070", "is no host name"},
        Mistake{"host/path:1", "is no host name"},
        Mistake{std::string(254, 'h'), "254 characters"},
        Mistake{"http://host:7070", "no URL"},
        Mistake{"/run/tl.sock", "unix:/run/tl.sock"},
        Mistake{"unix:", "path must follow"},
        Mistake{"unix:" + std::string(108, 'x'), "108 bytes"},
        Mistake{std::string("unix:/a\0b", 9), "zero byte"},
        Mistake{std::string("[::1\0.evil]:1", 13), "zero byte"},
        Mistake{"[::1", "']' is missing"}, Mistake{"[::1]7070", "after ']'"},
        Mistake{"[::1]:", "must follow the last colon"},
        Mistake{"[::1]:70000", "'70000' is no number"},
        Mistake{"[host]:7070", "'host' in brackets is no IPv6 address"},
        Mistake{"[]:7070", "is no IPv6 address"},
        Mistake{"[fe80::1%]:1", "is no IPv6 address"},
        // An address by itself, or an address and a port?
        Mistake{"fd00::5:7070", "Write [fd00::5]:7070 or [fd00::5:7070]"},
        Mistake{"1:2:3:4:5:6:7:8:7070", "[1:2:3:4:5:6:7:8]:7070"},
        Mistake{"host:7070:7071", "too many colons"}));

TEST(Endpoint, OnThisMachineOnlyIsToldFromTheRest) {
  for (const char* const text :
       {"unix:/run/tl.sock", "localhost:1", "LocalHost:1", "localhost.:1",
        "127.0.0.1:1", "127.255.0.9:1", "[::1]:1", "[0:0:0:0:0:0:0:1]:1",
        "[::ffff:127.0.0.1]:1"}) {
    const Result<Endpoint> endpoint = Endpoint::Parse(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.error().message;
    EXPECT_TRUE(endpoint->IsLoopback()) << text;
  }
  for (const char* const text :
       {"host:1", "0.0.0.0:1", "128.0.0.1:1", "10.0.0.127:1", "[::]:1",
        "[::2]:1", "[fd00::1]:1", "[::ffff:10.0.0.1]:1", "localhost.example:1",
        "127.0.0.1.example.com:1", "unix"}) {
    const Result<Endpoint> endpoint = Endpoint::Parse(text);
    ASSERT_TRUE(endpoint.ok()) << endpoint.error().message;
    EXPECT_FALSE(endpoint->IsLoopback()) << text;
  }
}

TEST(EndpointList, IsSeparatedByCommas) {
  const auto one = Endpoint::ParseList("host");
  ASSERT_TRUE(one.ok()) << one.error().message;
  EXPECT_EQ(*one, std::vector{Tcp("host", kDefaultPort)});

  const auto three = Endpoint::ParseList("a:1, [::2]:2 ,unix:/c");
  ASSERT_TRUE(three.ok()) << three.error().message;
  EXPECT_EQ(*three, (std::vector{Tcp("a", 1), Tcp("::2", 2), Unix("/c")}));
}

TEST(EndpointList, IsRefusedWhenEmptyOrWithAHole) {
  for (const char* const text : {"", " ", ",", "a:1,", ",a:1", "a:1,,b:2"}) {
    const auto parsed = Endpoint::ParseList(text);
    ASSERT_FALSE(parsed.ok()) << "'" << text << "'";
    EXPECT_NE(parsed.error().message.find("empty"), std::string::npos)
        << parsed.error().message;
  }
}

TEST(EndpointList, NamesTheMemberThatIsWrong) {
  const auto parsed = Endpoint::ParseList("a:1,b:x");
  ASSERT_FALSE(parsed.ok());
  EXPECT_NE(parsed.error().message.find("'b:x'"), std::string::npos)
      << parsed.error().message;
}

}  // namespace
}  // namespace tensorlightning
