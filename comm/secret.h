// The secret that a job's workers and aggregator share.
//
// It comes from a file (TL_SECRET_FILE) or the environment (TL_SECRET), never
// from a command line, which everybody on the machine can read, and is never
// printed: a Secret has no way to become text.
#ifndef TENSORLIGHTNING_COMM_SECRET_H_
#define TENSORLIGHTNING_COMM_SECRET_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/messages.h"
#include "kernels/result.h"

namespace tensorlightning {

class Secret {
 public:
  static constexpr size_t kMinBytes = 16;
  static constexpr size_t kMaxBytes = 4096;

  Secret() = default;  // None.
  ~Secret();           // Wipes the memory.
  Secret(Secret&&) = default;
  Secret(const Secret&) = default;
  // These wipe what was here.
  Secret& operator=(Secret&& other) noexcept;
  Secret& operator=(const Secret& other);

  // Trailing white space (an editor's newline) does not count. An error says
  // which path and why: missing, shorter than kMinBytes, longer than kMaxBytes,
  // readable by others than its owner (chmod 600 it).
  static Result<Secret> FromFile(const std::string& path);
  static Result<Secret> FromBytes(std::string_view bytes);
  // From TL_SECRET_FILE, else from TL_SECRET, else none. One that is set but
  // empty is an error.
  static Result<Secret> FromEnvironment();

  bool empty() const { return bytes_.empty(); }

  // HMAC-SHA256 over the label and all parts in order; without a secret, zeros.
  Mac Sign(std::string_view label,
           std::span<const std::span<const std::byte>> parts) const;

 private:
  std::vector<std::byte> bytes_;
};

// In time that does not depend on where they differ.
bool SameMac(const Mac& a, const Mac& b);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_SECRET_H_
