#include "comm/aggregator/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace tensorlightning {

Result<FolderLock> FolderLock::Take(const std::string& folder) {
  const auto unusable = [&](int reason) {
    return Error{ErrorCode::kInvalidArgument,
                 "the folder for snapshots " + folder +
                     " can't be used: " + std::strerror(reason)};
  };
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return unusable(errno);
  }
  const std::string path = folder + "/lock";
  FolderLock lock(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (lock.fd_ < 0) return unusable(errno);
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    return Error{ErrorCode::kInvalidArgument,
                 "another aggregator writes its snapshots into " + folder +
                     ": give this one a folder of its own"};
  }
  return lock;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace tensorlightning
