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
  Secret& operator=(Secret&&) = default;
  Secret(const Secret&) = default;
  Secret& operator=(const Secret&) = default;

  // Trailing white space (an editor's newline) does not count. An error says
  // which path and why: missing, shorter than kMinBytes, longer than kMaxBytes,
  // readable by others than its owner (chmod 600 it).
  static Result<Secret> FromFile(const std::string& path);
  static Result<Secret> FromBytes(std::string_view bytes);
  // From TL_SECRET_FILE, else from TL_SECRET, else none.
  static Result<Secret> FromEnvironment();

  bool empty() const { return bytes_.empty(); }

  // HMAC-SHA256 over all parts in order.
  Mac Sign(std::string_view label,
           std::span<const std::span<const std::byte>> parts) const;

 private:
  std::vector<std::byte> bytes_;
};

// In time that does not depend on where they differ.
bool SameMac(const Mac& a, const Mac& b);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_SECRET_H_
