// A folder that belongs to one process at a time: two aggregators that wrote
// their snapshots into one would lose each other's work.
#ifndef TENSORLIGHTNING_COMM_AGGREGATOR_FOLDER_LOCK_H_
#define TENSORLIGHTNING_COMM_AGGREGATOR_FOLDER_LOCK_H_

#include <string>
#include <utility>

#include "kernels/result.h"

namespace tensorlightning {

// Held until it dies, or the process does, however that comes about.
class FolderLock {
 public:
  // Makes the folder if there is none (but not its parents). An error when it
  // can't be written to, or another process has it.
  static Result<FolderLock> Take(const std::string& folder);

  FolderLock() = default;
  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }

 private:
  explicit FolderLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_AGGREGATOR_FOLDER_LOCK_H_
