// Snapshots on disks that fail: full ones, for real, and folders that nobody
// may write to.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "comm/snapshot.h"
#include "tests/comm/temp_folder.h"

namespace {
// What was done to files, in order; and which call of fsync() is to fail.
std::vector<std::string> calls;
int failing_fsync = -1;
int fsyncs = 0;
}  // namespace

// In place of the system's, which they call: a power cut can't be had, but the
// order that makes one harmless can be seen.
int ToldFsync(int descriptor) __asm__("fsync");
int ToldRename(const char* from, const char* to) __asm__("rename");

int ToldFsync(int descriptor) {
  struct stat about {};
  ::fstat(descriptor, &about);
  calls.emplace_back(S_ISDIR(about.st_mode) ? "fsync folder" : "fsync file");
  if (fsyncs++ == failing_fsync) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}
int ToldRename(const char* from, const char* to) {
  calls.emplace_back("rename");
  return static_cast<int>(
      ::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

namespace tensorlightning {
namespace {

namespace fs = std::filesystem;
using testing::TempFolder;

constexpr size_t kDiskBytes = 256 << 10;
constexpr char kSkip[] = "SKIP ";

// What `run` returns, in a process of its own: limits and mounts end with it.
std::string InChild(const std::function<std::string()>& run) {
  int ends[2];
  if (::pipe(ends) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string said = run();
    const ssize_t sent = ::write(ends[1], said.data(), said.size());
    ::_exit(sent == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string said(4096, '\0');
  const ssize_t got = ::read(ends[0], said.data(), said.size());
  ::close(ends[0]);
  said.resize(got > 0 ? static_cast<size_t>(got) : 0);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the child died";
  return said;
}

void WriteText(const char* path, const std::string& text) {
  std::ofstream(path) << text;
}

// Mounts a disk of kDiskBytes on the folder, for this process only; why not, if
// this machine does not let us.
std::string MountSmallDisk(const std::string& folder) {
  if (::unshare(CLONE_NEWNS) != 0) {
    // Not root: in a user namespace of our own we are.
    const std::string uid = std::to_string(::geteuid());
    const std::string gid = std::to_string(::getegid());
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
      return std::string("unshare: ") + std::strerror(errno);
    }
    WriteText("/proc/self/setgroups", "deny");
    WriteText("/proc/self/uid_map", uid + " " + uid + " 1");
    WriteText("/proc/self/gid_map", gid + " " + gid + " 1");
  }
  const std::string size = "mode=0777,size=" + std::to_string(kDiskBytes);
  // Private first, lest the mount show outside.
  if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      ::mount("tl", folder.c_str(), "tmpfs", 0, size.c_str()) != 0) {
    return std::string("mount: ") + std::strerror(errno);
  }
  return {};
}

// What writing a snapshot of a shard of so many bytes came to: an error's
// sentence, or "written".
std::string WriteShard(const std::string& folder, uint64_t number,
                       size_t bytes) {
  SnapshotHeader header;
  header.job = "job";
  header.range = {0, 1};
  header.number = number;
  Result<SnapshotWriter> writer = SnapshotWriter::Create(folder, header);
  if (!writer.ok()) return writer.error().message;
  const ShardSnapshot shard{0, 1, {}, std::vector<float>(bytes / 4, 1.5f)};
  if (Status status = writer->Add(shard); !status.ok()) {
    return status.error().message;
  }
  const Result<std::string> path = writer->Commit();
  return path.ok() ? "written" : path.error().message;
}

// The first fits, the second does not. A sentence for each thing seen.
std::string FillDisk(const std::string& folder) {
  std::string said = WriteShard(folder, 1, kDiskBytes / 2) + "\n";
  said += WriteShard(folder, 2, kDiskBytes * 2) + "\n";
  said += "files:";
  for (const auto& entry : fs::directory_iterator(folder)) {
    said += " " + entry.path().filename().string();
  }
  const Result<FoundSnapshot> found = FindSnapshot(folder);
  const bool whole = found.ok() && found->damaged.empty() && found->snapshot &&
                     found->snapshot->header.number == 1;
  return said + (whole ? "\nthe first is whole" : "\nthe first is lost");
}

std::string Expected(const std::string& folder, const std::string& reason) {
  return "written\n" + reason + ": the snapshot " + folder +
         "/snapshot-00000000000000000002.tls was not written; earlier ones are "
         "untouched\nfiles: snapshot-00000000000000000001.tls\nthe first is "
         "whole";
}

TEST(SnapshotOnAFullDisk, IsRefusedAndTheOneBeforeStays) {
  const TempFolder folder;
  const std::string said = InChild([&] {
    const std::string why_not = MountSmallDisk(folder.path());
    return why_not.empty() ? FillDisk(folder.path()) : kSkip + why_not;
  });
  if (said.starts_with(kSkip)) {
    GTEST_SKIP() << "no disk can be mounted here: " << said;
  }
  EXPECT_EQ(said, Expected(folder.path(), "no space left on device"));
}

TEST(SnapshotLongerThanAFileMayBe, IsRefusedAndTheOneBeforeStays) {
  const TempFolder folder;
  const std::string said = InChild([&]() -> std::string {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{kDiskBytes, kDiskBytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
    return FillDisk(folder.path());
  });
  EXPECT_EQ(said, Expected(folder.path(), "file too large"));
}

TEST(Snapshot, IsOnDiskBeforeItHasItsName) {
  const TempFolder parent;
  const std::string folder = parent.path() + "/made";
  const std::vector<std::string> writing = {"fsync file", "rename",
                                            "fsync folder"};
  calls.clear();
  ASSERT_EQ(WriteShard(folder, 1, 64), "written");
  std::vector<std::string> making = writing;
  making.insert(making.begin(), "fsync folder");  // The parent, once.
  EXPECT_EQ(calls, making);
  calls.clear();
  ASSERT_EQ(WriteShard(folder, 2, 64), "written");
  EXPECT_EQ(calls, writing);
}

TEST(Snapshot, IsNotTakenForWrittenWhenTheDiskCannotSayThatItHasIt) {
  const TempFolder folder;
  const std::string error = "input/output error: the snapshot " +
                            folder.path() + "/snapshot-0000000000000000000";
  for (uint64_t number : {1, 2}) {
    ASSERT_EQ(WriteShard(folder.path(), number, 64), "written");
  }
  fsyncs = failing_fsync = 0;  // Of the file.
  EXPECT_EQ(WriteShard(folder.path(), 3, 64),
            error + "3.tls was not written; earlier ones are untouched");
  EXPECT_EQ(FindSnapshot(folder.path())->next_number, 3u);
  EXPECT_FALSE(
      fs::exists(folder.path() + "/snapshot-00000000000000000003.tmp"));
  fsyncs = 0;
  failing_fsync = 1;  // Of the folder.
  EXPECT_EQ(WriteShard(folder.path(), 3, 64),
            error +
                "3.tls is written, but may not survive a power cut; earlier "
                "ones are untouched");
  failing_fsync = -1;
  // Nothing older goes while the newest is in doubt.
  const fs::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 3);
}

TEST(SnapshotFolder, ThatMayNotBeWrittenToIsNamed) {
  const TempFolder parent;
  const std::string folder = parent.path() + "/closed";
  ASSERT_EQ(::mkdir(folder.c_str(), 0555), 0);
  const std::string said = InChild([&]() -> std::string {
    // Nothing is closed to root, unless it gives up its powers.
    __user_cap_header_struct which{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {};
    if (::syscall(SYS_capset, &which, none) != 0) return "no capset";
    return WriteShard(folder, 1, 64);
  });
  EXPECT_EQ(said, "permission denied: the folder for snapshots " + folder +
                      " can't be used; name one that this user may write to");
}

TEST(SnapshotFolder, ThatCannotBeIsNamed) {
  const TempFolder parent;
  const std::string file = parent.path() + "/file";
  WriteText(file.c_str(), "no folder");
  const std::string hint =
      " can't be used; name one that this user may write to";
  EXPECT_EQ(WriteShard(file, 1, 64),
            "not a directory: the folder for snapshots " + file + hint);
  EXPECT_EQ(
      WriteShard(file + "/below", 1, 64),
      "not a directory: the folder for snapshots " + file + "/below" + hint);
  const std::string missing = parent.path() + "/not/mounted";
  EXPECT_EQ(
      WriteShard(missing, 1, 64),
      "no such file or directory: the folder for snapshots " + missing + hint);
  EXPECT_EQ(
      FindSnapshot(file).error().message,
      "not a directory: the folder of snapshots " + file + " can't be read");
}

}  // namespace
}  // namespace tensorlightning
