#include "comm/tools/tl_load_ledger.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <system_error>
#include <utility>

namespace tensorlightning {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename Number>
void Append(std::vector<std::byte>& record, Number number) {
  const auto bytes = std::as_bytes(std::span(&number, 1));
  record.insert(record.end(), bytes.begin(), bytes.end());
}

Error IoError(const std::string& path, const char* what) {
  return {ErrorCode::kIo, "the ledger " + path + " can't be " + what + ": " +
                              std::generic_category().message(errno)};
}

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::Open(const std::string& path) {
  const int fd =
      ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return IoError(path, "opened");
  return std::unique_ptr<Ledger>(new Ledger(fd, path));
}

Ledger::~Ledger() { ::close(fd_); }

void Ledger::Add(uint32_t rank, uint32_t shard, uint64_t sequence,
                 std::span<const std::byte> code) {
  const std::lock_guard lock(mutex_);
  record_.clear();
  Append(record_, rank);
  Append(record_, shard);
  Append(record_, sequence);
  Append(record_, static_cast<uint32_t>(code.size()));
  record_.insert(record_.end(), code.begin(), code.end());
  ssize_t written = 0;
  do {
    written = ::write(fd_, record_.data(), record_.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(record_.size()) || !status_.ok()) return;
  if (written >= 0) errno = ENOSPC;  // Part of it: what comes next will fail.
  status_ = IoError(path_, "written");
}

Status Ledger::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace tensorlightning
