// A TAP device of a network namespace, as a file: read() gives the frames that
// the host sends, write() hands it frames. Errors are thrown, for there is
// nothing that a test bed could do about them but say what they are.
#ifndef TESTS_CLUSTER_TAP_H_
#define TESTS_CLUSTER_TAP_H_

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace tensorlightning::cluster {

[[noreturn]] inline void ThrowErrno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

class FileDescriptor {
 public:
  FileDescriptor(int fd, const std::string& what) : fd_(fd) {
    if (fd_ < 0) ThrowErrno(what);
  }
  FileDescriptor(const std::string& path, int flags)
      : FileDescriptor(open(path.c_str(), flags | O_CLOEXEC), path) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// Attaches to a device that exists. It belongs to the namespace in which the
// file is opened; this process stays in its own.
inline FileDescriptor OpenTap(const std::string& name_space,
                              const std::string& device) {
  const FileDescriptor home("/proc/self/ns/net", O_RDONLY);
  const FileDescriptor there("/var/run/netns/" + name_space, O_RDONLY);
  if (setns(there.get(), CLONE_NEWNET) != 0) ThrowErrno(name_space);
  FileDescriptor tap("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (setns(home.get(), CLONE_NEWNET) != 0) ThrowErrno("back from there");

  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  device.copy(request.ifr_name, IFNAMSIZ - 1);
  if (ioctl(tap.get(), TUNSETIFF, &request) != 0) {
    ThrowErrno(name_space + ", " + device);
  }
  return tap;
}

// The six bytes of an Ethernet address, as a number.
inline uint64_t ReadAddress(const void* bytes) {
  uint64_t address = 0;
  std::memcpy(&address, bytes, 6);
  return address;
}

inline uint64_t AddressOf(const FileDescriptor& tap) {
  ifreq request{};
  if (ioctl(tap.get(), SIOCGIFHWADDR, &request) != 0) ThrowErrno("address");
  return ReadAddress(request.ifr_hwaddr.sa_data);
}

}  // namespace tensorlightning::cluster

#endif  // TESTS_CLUSTER_TAP_H_
