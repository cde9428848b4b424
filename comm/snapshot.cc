#include "comm/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <limits>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>

#include "comm/crc32c.h"
#include "comm/snapshot_format.h"
#include "comm/wire_format.h"

namespace tensorlightning {
namespace {

constexpr std::string_view kPrefix = "snapshot-";
constexpr std::string_view kWholeSuffix = ".tls";
constexpr std::string_view kTmpSuffix = ".tmp";

std::string NameOfNumber(uint64_t number, std::string_view suffix) {
  std::string digits = std::to_string(number);
  digits.insert(0, std::numeric_limits<uint64_t>::digits10 + 1 - digits.size(),
                '0');
  return std::string(kPrefix) + digits + std::string(suffix);
}

// The number in the name of a snapshot, or nothing if it is the name of
// something else.
std::optional<uint64_t> NumberOf(std::string_view name,
                                 std::string_view suffix) {
  if (!name.starts_with(kPrefix) || !name.ends_with(suffix)) return {};
  const char* end = name.data() + name.size() - suffix.size();
  uint64_t number = 0;
  const auto [stop, error] =
      std::from_chars(name.data() + kPrefix.size(), end, number);
  if (error != std::errc() || stop != end) return {};
  // Exactly as we write it: "snapshot-42.tls" is not ours.
  if (NameOfNumber(number, suffix) != name) return {};
  return number;
}

// "no space left on device"
std::string Reason(int error) {
  std::string text = std::generic_category().message(error);
  if (!text.empty()) {
    text[0] = static_cast<char>(std::tolower(static_cast<uint8_t>(text[0])));
  }
  return text;
}

class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() { Close(); }

  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void Reset(int descriptor) {
    Close();
    descriptor_ = descriptor;
  }
  int Close() {
    return is_open() ? ::close(std::exchange(descriptor_, -1)) : 0;
  }

 private:
  int descriptor_ = -1;
};

// Flushes the entries of a folder; 0 or the errno. Some file systems have no
// such call, and say so by EINVAL: nothing more can be done on them.
int SyncFolder(const std::string& folder) {
  const File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!file.is_open()) return errno;
  return ::fsync(file.get()) == 0 || errno == EINVAL ? 0 : errno;
}

// The folder that the entry of `folder` is in.
std::string ParentOf(std::string folder) {
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  const size_t slash = folder.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : folder.substr(0, slash);
}

struct Listing {
  std::vector<uint64_t> whole;    // Newest first.
  std::vector<std::string> tmps;  // Paths.
};

// What is in the folder, or the errno.
int List(const std::string& folder, Listing& listing) {
  DIR* const handle = ::opendir(folder.c_str());
  if (handle == nullptr) return errno;
  errno = 0;
  while (const dirent* entry = ::readdir(handle)) {
    const std::string_view name = entry->d_name;
    if (const auto number = NumberOf(name, kWholeSuffix)) {
      listing.whole.push_back(*number);
    } else if (NumberOf(name, kTmpSuffix)) {
      listing.tmps.push_back(folder + "/" + entry->d_name);
    }
    errno = 0;
  }
  const int error = errno;
  ::closedir(handle);
  std::sort(listing.whole.rbegin(), listing.whole.rend());
  return error;
}

}  // namespace

struct SnapshotWriter::Impl {
  std::string folder;
  std::string path;
  std::string tmp;
  ShardRange range;
  uint32_t next = 0;  // Shard.
  File file;
  uint64_t length = 0;
  uint32_t crc = 0;
  // Why nothing more can be added: what went wrong, or that it is done.
  std::optional<Error> ended;

  ~Impl() { Remove(); }

  void Remove() {
    if (!file.is_open()) return;
    file.Close();
    ::unlink(tmp.c_str());
  }
  Error End(Error error) {
    Remove();
    ended = error;
    return error;
  }
  Error Failed(int error) {
    return End(
        {ErrorCode::kIo, Reason(error) + ": the snapshot " + path +
                             " was not written; earlier ones are untouched"});
  }

  Status Write(std::span<const std::byte> bytes) {
    length += bytes.size();
    while (!bytes.empty()) {
      const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return Failed(errno);
      // Without an errno, nothing will become of it.
      if (written == 0) return Failed(ENOSPC);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return Done{};
  }

  // A part and its CRC.
  Status WriteSummed(Bytes part) {
    crc = Crc32c(part, crc);
    FieldWriter(part).U32(crc);
    return Write(part);
  }

  void RemoveOlder() const {
    Listing listing;
    if (List(folder, listing) != 0) return;
    // One that can't be removed is tried again after the next snapshot; the
    // present one is as good without.
    for (size_t i = kKeptSnapshots; i < listing.whole.size(); ++i) {
      const std::string name = NameOfNumber(listing.whole[i], kWholeSuffix);
      ::unlink((folder + "/" + name).c_str());
    }
  }
};

SnapshotWriter::SnapshotWriter(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
SnapshotWriter::SnapshotWriter(SnapshotWriter&&) noexcept = default;
SnapshotWriter& SnapshotWriter::operator=(SnapshotWriter&&) noexcept = default;
SnapshotWriter::~SnapshotWriter() = default;

Result<SnapshotWriter> SnapshotWriter::Create(const std::string& folder,
                                              const SnapshotHeader& header) {
  if (Status status = CheckSnapshotHeader(header); !status.ok())
    return status.error();
  const auto failed = [&](int error) {
    return Error{ErrorCode::kIo,
                 Reason(error) + ": the folder for snapshots " + folder +
                     " can't be used; name one that this user may write to"};
  };
  // The parent is not made: where a disk is not mounted, that would hide it.
  if (::mkdir(folder.c_str(), 0700) == 0) {
    if (const int error = SyncFolder(ParentOf(folder))) return failed(error);
  } else if (errno != EEXIST) {
    return failed(errno);
  }
  Listing listing;
  if (const int error = List(folder, listing)) return failed(error);
  // Otherwise an older one would be overwritten, or this one removed as old.
  if (!listing.whole.empty() && header.number <= listing.whole[0]) {
    return Error{ErrorCode::kInvalidArgument,
                 "snapshot " + std::to_string(header.number) +
                     " can't follow snapshot " +
                     std::to_string(listing.whole[0]) + " in " + folder +
                     "; is another aggregator writing there?"};
  }
  // Left by a crash. First of all, since they may fill the disk.
  for (const std::string& path : listing.tmps) ::unlink(path.c_str());

  auto impl = std::make_unique<Impl>();
  impl->folder = folder;
  impl->path = folder + "/" + NameOfNumber(header.number, kWholeSuffix);
  impl->tmp = folder + "/" + NameOfNumber(header.number, kTmpSuffix);
  impl->range = header.range;
  impl->next = header.range.begin;
  impl->file.Reset(
      ::open(impl->tmp.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!impl->file.is_open()) return failed(errno);
  const Status written = impl->WriteSummed(SnapshotHeaderBytes(header));
  if (!written.ok()) return written.error();
  return SnapshotWriter(std::move(impl));
}

Status SnapshotWriter::Add(const ShardSnapshot& shard) {
  if (impl_->ended) return *impl_->ended;
  if (shard.shard != impl_->next || !impl_->range.Contains(shard.shard)) {
    return impl_->End({ErrorCode::kInvalidArgument,
                       "shard " + std::to_string(shard.shard) +
                           " was added to the snapshot " + impl_->path +
                           " where shard " + std::to_string(impl_->next) +
                           " of [" + std::to_string(impl_->range.begin) + ", " +
                           std::to_string(impl_->range.end) + ") was due"});
  }
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  if (shard.applied.size() > kMost || shard.centre.size() > kMost) {
    return impl_->End({ErrorCode::kInvalidArgument,
                       "shard " + std::to_string(shard.shard) +
                           " has more than 2^32 entries or workers"});
  }
  ++impl_->next;
  Status status = impl_->WriteSummed(SnapshotShardBytes(shard));
  if (!status.ok()) return status;
  // As they are: a copy of a megabyte would be for nothing.
  const auto floats = std::as_bytes(std::span(shard.centre));
  status = impl_->Write(floats);
  if (!status.ok()) return status;
  impl_->crc = Crc32c(floats, impl_->crc);
  return impl_->Write(std::as_bytes(std::span(&impl_->crc, 1)));
}

Result<std::string> SnapshotWriter::Commit() {
  if (impl_->ended) return *impl_->ended;
  if (impl_->next != impl_->range.end) {
    return impl_->End({ErrorCode::kInvalidArgument,
                       "the snapshot " + impl_->path + " lacks shard " +
                           std::to_string(impl_->next) + " and was dropped"});
  }
  const Status written = impl_->WriteSummed(SnapshotEndBytes(impl_->length));
  if (!written.ok()) return written.error();
  // The bytes before the name: a name that is there after a power cut must not
  // stand for less than the whole.
  if (::fsync(impl_->file.get()) != 0) return impl_->Failed(errno);
  if (::rename(impl_->tmp.c_str(), impl_->path.c_str()) != 0) {
    return impl_->Failed(errno);
  }
  impl_->file.Close();
  impl_->ended = Error{ErrorCode::kInvalidArgument,
                       "the snapshot " + impl_->path + " is complete already"};
  if (const int error = SyncFolder(impl_->folder)) {
    return Error{ErrorCode::kIo,
                 Reason(error) + ": the snapshot " + impl_->path +
                     " is written, but may not survive a power cut; earlier "
                     "ones are untouched"};
  }
  impl_->RemoveOlder();
  return impl_->path;
}

namespace {

Result<Snapshot> ReadSnapshot(const std::string& path) {
  // O_NONBLOCK: a pipe of that name must not hold us up.
  const File file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file.is_open() || ::fstat(file.get(), &about) != 0) {
    return Error{ErrorCode::kIo, Reason(errno)};
  }
  if (!S_ISREG(about.st_mode))
    return Error{ErrorCode::kCorrupt, "it is no file"};
  const auto size = static_cast<size_t>(about.st_size);
  // Neither zeroed nor thrown for: a size out of a broken file system is one
  // more kind of damage.
  const std::unique_ptr<std::byte[]> bytes(new (std::nothrow) std::byte[size]);
  if (bytes == nullptr) {
    return Error{ErrorCode::kUnavailable,
                 "no memory to read its " + std::to_string(size) + " bytes"};
  }
  size_t have = 0;
  while (have < size) {
    const ssize_t got = ::read(file.get(), bytes.get() + have, size - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error{ErrorCode::kIo, Reason(errno)};
    if (got == 0) break;  // It has shrunk: Parse will say where it ends.
    have += static_cast<size_t>(got);
  }
  return ParseSnapshot({bytes.get(), have});
}

}  // namespace

Result<FoundSnapshot> FindSnapshot(const std::string& folder) {
  FoundSnapshot found;
  Listing listing;
  const int error = List(folder, listing);
  if (error == ENOENT) return found;
  if (error != 0) {
    return Error{ErrorCode::kIo, Reason(error) + ": the folder of snapshots " +
                                     folder + " can't be read"};
  }
  if (!listing.whole.empty()) found.next_number = listing.whole[0] + 1;
  for (const uint64_t number : listing.whole) {
    const std::string path = folder + "/" + NameOfNumber(number, kWholeSuffix);
    Result<Snapshot> snapshot = ReadSnapshot(path);
    if (snapshot.ok()) {
      found.snapshot = std::move(*snapshot);
      found.path = path;
      break;
    }
    found.damaged.push_back(path + ": " + snapshot.error().message);
  }
  return found;
}

}  // namespace tensorlightning
