#include "comm/secret.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace tensorlightning {
namespace {

// Text that is wiped when it goes.
struct Wiped {
  std::string text;
  ~Wiped() { OPENSSL_cleanse(text.data(), text.size()); }
};

struct OpenFile {
  int fd;
  ~OpenFile() {
    if (fd >= 0) close(fd);
  }
};

Error AtPath(ErrorCode code, const std::string& path, const std::string& why) {
  return {code, "secret file '" + path + "': " + why};
}

Error FromSystem(const std::string& path, int number) {
  return AtPath(number == ENOENT || number == EACCES
                    ? ErrorCode::kInvalidArgument
                    : ErrorCode::kIo,
                path, std::strerror(number));
}

std::string_view WithoutTrailingSpace(std::string_view text) {
  const size_t last = text.find_last_not_of(" \t\r\n\v\f");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

}  // namespace

Secret::~Secret() { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

// What was here goes to `taken`, and is wiped with it.
Secret& Secret::operator=(Secret&& other) noexcept {
  Secret taken(std::move(other));
  std::swap(bytes_, taken.bytes_);
  return *this;
}

Secret& Secret::operator=(const Secret& other) { return *this = Secret(other); }

Result<Secret> Secret::FromBytes(std::string_view bytes) {
  const std::string_view kept = WithoutTrailingSpace(bytes);
  if (kept.size() < kMinBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 "a secret of " + std::to_string(kept.size()) +
                     " bytes is too short to be one; it needs " +
                     std::to_string(kMinBytes) +
                     ". `openssl rand -hex 32` prints a good one"};
  }
  if (kept.size() > kMaxBytes) {
    return Error{ErrorCode::kInvalidArgument,
                 "a secret has at most " + std::to_string(kMaxBytes) +
                     " bytes; is this the right file?"};
  }
  Secret secret;
  const auto raw = std::as_bytes(std::span(kept));
  secret.bytes_.assign(raw.begin(), raw.end());
  return secret;
}

Result<Secret> Secret::FromFile(const std::string& path) {
  // Not blocking: a pipe must not hang a job at its start.
  const OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return FromSystem(path, errno);
  struct stat about {};
  if (fstat(file.fd, &about) != 0) return FromSystem(path, errno);
  if (!S_ISREG(about.st_mode)) {
    return AtPath(ErrorCode::kInvalidArgument, path, "is not a regular file");
  }
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return AtPath(ErrorCode::kInvalidArgument, path,
                  "others than its owner may use it; chmod 600 it");
  }
  // Twice as much as is allowed leaves room for any editor's white space.
  Wiped content{std::string(2 * kMaxBytes, '\0')};
  size_t size = 0;
  while (size < content.text.size()) {
    const ssize_t got =
        read(file.fd, content.text.data() + size, content.text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FromSystem(path, errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  if (size == content.text.size()) {
    return AtPath(ErrorCode::kInvalidArgument, path,
                  "too large to be a secret; is this the right file?");
  }
  content.text.resize(size);
  Result<Secret> secret = FromBytes(content.text);
  if (secret.ok()) return secret;
  return AtPath(secret.error().code, path, secret.error().message);
}

Result<Secret> Secret::FromEnvironment() {
  // One that is set but empty is a script's mistake, and must not turn
  // authentication off.
  if (const char* path = std::getenv("TL_SECRET_FILE")) {
    if (*path != '\0') return FromFile(path);
    return Error{ErrorCode::kInvalidArgument,
                 "TL_SECRET_FILE is set but empty; name a file or unset it"};
  }
  if (const char* bytes = std::getenv("TL_SECRET")) {
    Result<Secret> secret = FromBytes(bytes);
    if (secret.ok()) return secret;
    return Error{secret.error().code, "TL_SECRET: " + secret.error().message};
  }
  return Secret();
}

Mac Secret::Sign(std::string_view label,
                 std::span<const std::span<const std::byte>> parts) const {
  Mac mac{};
  if (empty()) return mac;
  const auto front = std::as_bytes(std::span(label));
  Bytes message(front.begin(), front.end());
  for (const auto part : parts) {
    message.insert(message.end(), part.begin(), part.end());
  }
  unsigned int size = 0;
  const unsigned char* const signed_ =
      HMAC(EVP_sha256(), bytes_.data(), static_cast<int>(bytes_.size()),
           reinterpret_cast<const unsigned char*>(message.data()),
           message.size(), reinterpret_cast<unsigned char*>(mac.data()), &size);
  if (signed_ == nullptr || size != mac.size()) {
    // There is no value to go on with: a predictable proof would be a hole.
    std::fputs("tensorlightning: OpenSSL could not compute an HMAC-SHA256\n",
               stderr);
    std::abort();
  }
  return mac;
}

bool SameMac(const Mac& a, const Mac& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace tensorlightning
