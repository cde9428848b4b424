#include "comm/endpoint.h"

#include <arpa/inet.h>
#include <strings.h>
#include <sys/un.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace tensorlightning {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr size_t kMaxUnixPath = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kMaxHost = 253;  // Of DNS.

Error Bad(std::string_view text, const std::string& why) {
  return {ErrorCode::kInvalidArgument,
          "endpoint '" + std::string(text) + "': " + why};
}

std::string_view Trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// What names are made of; names that aren't ASCII are the resolver's business.
bool IsNameCharacter(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         c == '-' || c == '.' || c == '_' || static_cast<uint8_t>(c) >= 0x80;
}

bool IsName(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), &IsNameCharacter);
}

std::optional<in_addr> Ipv4(std::string_view host) {
  in_addr address;
  if (inet_pton(AF_INET, std::string(host).c_str(), &address) != 1) return {};
  return address;
}

// May end in the interface of a link-local address: fe80::1%eth0.
std::optional<in6_addr> Ipv6(std::string_view host) {
  const size_t percent = host.find('%');
  if (percent != std::string_view::npos && !IsName(host.substr(percent + 1))) {
    return {};
  }
  in6_addr address;
  const std::string plain(host.substr(0, percent));
  if (inet_pton(AF_INET6, plain.c_str(), &address) != 1) return {};
  return address;
}

std::optional<uint16_t> Port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return port;
}

Error BadPort(std::string_view text, std::string_view port) {
  if (port.empty()) {
    return Bad(text,
               "a number from 0 to 65535 must follow the last colon; without "
               "the colon the port is " +
                   std::to_string(kDefaultPort));
  }
  return Bad(text, "the port '" + std::string(port) +
                       "' is no number from 0 to 65535");
}

Result<Endpoint> ParseUnix(std::string_view text) {
  const std::string_view path = text.substr(kUnixPrefix.size());
  if (path.empty()) {
    return Bad(text, "a path must follow unix:, as in unix:/run/tl.sock");
  }
  if (path.size() > kMaxUnixPath) {
    return Bad(text, "the path has " + std::to_string(path.size()) +
                         " bytes, Unix sockets take " +
                         std::to_string(kMaxUnixPath) + "; use a shorter one");
  }
  return Endpoint{.host = {}, .port = 0, .unix_path = std::string(path)};
}

Result<Endpoint> ParseBracketed(std::string_view text) {
  const size_t close = text.find(']');
  if (close == std::string_view::npos) {
    return Bad(text, "']' is missing after the IPv6 address");
  }
  const std::string_view host = text.substr(1, close - 1);
  if (!Ipv6(host)) {
    return Bad(text,
               "'" + std::string(host) + "' in brackets is no IPv6 address");
  }
  const std::string_view rest = text.substr(close + 1);
  if (rest.empty()) return Endpoint{std::string(host), kDefaultPort, {}};
  if (rest.front() != ':') {
    return Bad(text, "after ']' only a colon and a port may follow");
  }
  const auto port = Port(rest.substr(1));
  if (!port) return BadPort(text, rest.substr(1));
  return Endpoint{std::string(host), *port, {}};
}

// Several colons and no brackets. fd00::5 is clear; fd00::5:7070 is an address
// by itself, and as likely meant to be an address and a port.
Result<Endpoint> ParseColons(std::string_view text) {
  const size_t colon = text.rfind(':');
  const std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  const bool is_address = Ipv6(text).has_value();
  const bool is_with_port = Ipv6(host) && Port(port);
  if (is_address && !is_with_port) {
    return Endpoint{std::string(text), kDefaultPort, {}};
  }
  const std::string with_port =
      "[" + std::string(host) + "]:" + std::string(port);
  if (is_address) {
    return Bad(text, "is '" + std::string(port) +
                         "' a port or the end of the address? Write " +
                         with_port + " or [" + std::string(text) + "]");
  }
  if (is_with_port) {
    return Bad(text, "an IPv6 address goes into brackets: " + with_port);
  }
  return Bad(text,
             "too many colons for host:port, and no IPv6 address, which is "
             "written [fd00::5]:7070");
}

// Of a host that stands before a port or alone, and is not in brackets.
std::optional<std::string> WrongWithHost(std::string_view host) {
  if (host.empty()) {
    return "the host before the port is missing; 0.0.0.0 or [::] listens on "
           "every address, localhost on this machine only";
  }
  if (host == "*") {
    return "'*' is no host; 0.0.0.0 or [::] listens on every address";
  }
  if (host.size() > kMaxHost) {
    return "the host has " + std::to_string(host.size()) +
           " characters, names have at most " + std::to_string(kMaxHost);
  }
  if (!IsName(host)) {
    return "'" + std::string(host) +
           "' is no host name: letters, digits, '.', '-' and '_'";
  }
  // Resolvers take 7070 for 0.0.27.158 and 10.5 for 10.0.0.5: nobody means it.
  const auto numeric = [](char c) { return IsDigit(c) || c == '.'; };
  if (std::all_of(host.begin(), host.end(), numeric) && !Ipv4(host)) {
    return std::all_of(host.begin(), host.end(), &IsDigit)
               ? "there is only a number; write localhost:" +
                     std::string(host) + " if it is the port"
               : "'" + std::string(host) +
                     "' is no IPv4 address: four numbers from 0 to 255";
  }
  return {};
}

}  // namespace

std::string Endpoint::ToString() const {
  if (is_unix()) return std::string(kUnixPrefix) + unix_path;
  const bool brackets = host.find(':') != std::string::npos;
  return (brackets ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool Endpoint::IsLoopback() const {
  if (is_unix() || strcasecmp(host.c_str(), "localhost") == 0 ||
      strcasecmp(host.c_str(), "localhost.") == 0) {
    return true;
  }
  if (const auto v4 = Ipv4(host)) return ntohl(v4->s_addr) >> 24 == 127;
  const auto v6 = Ipv6(host);
  if (!v6) return false;
  if (IN6_IS_ADDR_V4MAPPED(&*v6)) return v6->s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&*v6);
}

Result<Endpoint> Endpoint::Parse(std::string_view text) {
  text = Trim(text);
  if (text.empty()) {
    return Bad(text,
               "it is empty; write host:7070, [fd00::5]:7070 or "
               "unix:/run/tl.sock");
  }
  // Functions of C would stop at it and see less than we do.
  if (text.find('\0') != std::string_view::npos) {
    return Bad(text.substr(0, text.find('\0')), "a zero byte follows");
  }
  if (text.starts_with(kUnixPrefix)) return ParseUnix(text);
  if (text.find("://") != std::string_view::npos) {
    return Bad(text, "it is no URL; write host:port or unix:/path");
  }
  if (text.front() == '/') {
    return Bad(text, "a Unix socket is written unix:" + std::string(text));
  }
  if (text.front() == '[') return ParseBracketed(text);
  if (std::count(text.begin(), text.end(), ':') > 1) return ParseColons(text);

  const size_t colon = text.find(':');
  const std::string_view host = text.substr(0, colon);
  if (const auto wrong = WrongWithHost(host)) return Bad(text, *wrong);
  if (colon == std::string_view::npos) {
    return Endpoint{std::string(host), kDefaultPort, {}};
  }
  const auto port = Port(text.substr(colon + 1));
  if (!port) return BadPort(text, text.substr(colon + 1));
  return Endpoint{std::string(host), *port, {}};
}

Result<std::vector<Endpoint>> Endpoint::ParseList(std::string_view text) {
  std::vector<Endpoint> endpoints;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view one = Trim(text.substr(begin, comma - begin));
    if (one.empty() && !Trim(text).empty()) {
      return Bad(text, "number " + std::to_string(endpoints.size() + 1) +
                           " of the list is empty; remove the comma");
    }
    Result<Endpoint> endpoint = Parse(one);
    if (!endpoint.ok()) return endpoint.error();
    endpoints.push_back(std::move(*endpoint));
    begin = comma + 1;
  }
  return endpoints;
}

}  // namespace tensorlightning
