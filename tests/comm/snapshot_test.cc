#include "comm/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <random>
#include <set>

#include "tests/comm/snapshot_bytes.h"
#include "tests/comm/temp_folder.h"

namespace {
std::atomic<size_t> largest_allocation{0};
}  // namespace

// Watches what the whole process allocates.
[[gnu::noinline]] void* operator new(size_t size) {
  if (size > largest_allocation) largest_allocation = size;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}

namespace tensorlightning {
namespace {

namespace fs = std::filesystem;
using testing::MendCrcs;
using testing::SnapshotBytes;
using testing::TempFolder;
using Random = std::mt19937_64;

// Any bits at all as floats: NaNs must come back as they were, too.
Snapshot MakeSnapshot(uint64_t seed, uint64_t number, size_t most_entries) {
  Random random(seed);
  Snapshot snapshot;
  SnapshotHeader& header = snapshot.header;
  header.job.assign(random() % (kMaxIdBytes + 1), 'j');
  header.rule = static_cast<Rule>(random() % kRules);
  header.layout.resize(random() % 300, static_cast<std::byte>(random()));
  header.range.begin = static_cast<uint32_t>(random() % 5);
  header.range.end = header.range.begin + static_cast<uint32_t>(random() % 5);
  header.number = number;
  for (uint32_t i = header.range.begin; i < header.range.end; ++i) {
    ShardSnapshot& shard = snapshot.shards.emplace_back();
    shard.shard = i;
    shard.version = random();
    shard.applied.resize(random() % 4);
    for (AppliedPush& push : shard.applied) {
      push = {static_cast<uint32_t>(random()), random()};
    }
    shard.centre.resize(random() % (most_entries + 1));
    for (float& value : shard.centre) {
      const auto bits = static_cast<uint32_t>(random());
      std::memcpy(&value, &bits, sizeof(value));
    }
  }
  return snapshot;
}

// Two shards, one of which has no entries.
Snapshot MakeSmallSnapshot(uint64_t number = 1) {
  Snapshot snapshot;
  snapshot.header = {
      "job", Rule::kGradientSync, Bytes(5, std::byte{7}), {3, 5}, number};
  snapshot.shards = {
      {3, 17, {{0, 9}, {2, 8}}, {1.0f, -2.0f, 0.5f}},
      {4, 0, {}, {}},
  };
  return snapshot;
}

Result<std::string> Write(const std::string& folder, const Snapshot& snapshot) {
  Result<SnapshotWriter> writer =
      SnapshotWriter::Create(folder, snapshot.header);
  if (!writer.ok()) return writer.error();
  for (const ShardSnapshot& shard : snapshot.shards) {
    if (Status status = writer->Add(shard); !status.ok()) return status.error();
  }
  return writer->Commit();
}

Bytes ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

void WriteBytes(const std::string& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::string NameOf(int number, const std::string& suffix = ".tls") {
  const std::string digits = std::to_string(number);
  return "snapshot-" + std::string(20 - digits.size(), '0') + digits + suffix;
}

std::set<std::string> NamesIn(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    names.insert(entry.path().filename());
  }
  return names;
}

std::string WhyNot(std::span<const std::byte> bytes) {
  const Result<Snapshot> snapshot = ParseSnapshot(bytes);
  return snapshot.ok() ? "it parses" : snapshot.error().message;
}

TEST(Snapshot, ComesBackAsItWasWritten) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    const TempFolder folder;
    const size_t most_entries = seed % 10 == 0 ? kShardEntries : 50;
    const Snapshot written = MakeSnapshot(seed, seed + 1, most_entries);
    const Result<std::string> path = Write(folder.path(), written);
    ASSERT_TRUE(path.ok()) << path.error().message;
    // The file is as described, and nothing of it is lost in reading.
    EXPECT_EQ(ReadBytes(*path), SnapshotBytes(written)) << "seed " << seed;

    const Result<FoundSnapshot> found = FindSnapshot(folder.path());
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_TRUE(found->damaged.empty());
    EXPECT_EQ(found->path, *path);
    EXPECT_EQ(found->next_number, seed + 2);
    ASSERT_TRUE(found->snapshot.has_value());
    EXPECT_EQ(SnapshotBytes(*found->snapshot), SnapshotBytes(written));
  }
}

TEST(Snapshot, IsRefusedWhereverItIsCutOff) {
  const Bytes bytes = SnapshotBytes(MakeSmallSnapshot());
  ASSERT_TRUE(ParseSnapshot(bytes).ok());
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Bytes cut(bytes.begin(),
                    bytes.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(ParseSnapshot(cut).ok()) << size << " bytes";
  }
  Bytes longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_EQ(WhyNot(longer), "it does not end where it says");
  // Even if it says so: the end is where the end is.
  const size_t length = bytes.size() - 12;
  longer[length] = static_cast<std::byte>(longer.size());
  MendCrcs(longer);
  EXPECT_EQ(WhyNot(longer), "it does not end where it says");
}

TEST(Snapshot, IsRefusedWhicheverBitIsFlipped) {
  const Bytes bytes = SnapshotBytes(MakeSmallSnapshot());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    Bytes flipped = bytes;
    flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(ParseSnapshot(flipped).ok()) << "bit " << bit;
  }
}

TEST(Snapshot, IsRefusedWithAShardOfAnotherOneInIt) {
  const Snapshot one = MakeSmallSnapshot();
  Snapshot other = one;
  other.shards[0].centre[0] = 8.0f;
  Bytes bytes = SnapshotBytes(one);
  const Bytes donor = SnapshotBytes(other);
  const size_t header = 28 + 3 + 5 + 4;
  const size_t shard = 64 + 2 * 16 + 4 + 3 * 4 + 4;
  std::copy_n(donor.begin() + header, shard, bytes.begin() + header);
  EXPECT_EQ(WhyNot(bytes), "shard 4 is damaged: its checksum is wrong");
}

TEST(Snapshot, SaysWhatIsWrong) {
  const Bytes good = SnapshotBytes(MakeSmallSnapshot());
  const auto why = [&](size_t at, uint8_t value) {
    Bytes bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    MendCrcs(bytes);
    return WhyNot(bytes);
  };
  const size_t shard = 28 + 3 + 5 + 4;
  const std::string header =
      "its header has a rule, an id or a range that "
      "can't be";
  EXPECT_EQ(why(0, 'X'), "it is no snapshot: it does not begin with TLS1");
  EXPECT_EQ(why(4, 2), "it is of format 2; this program reads format 1");
  EXPECT_EQ(why(6, kRules), header);
  EXPECT_EQ(why(16, 6), header);
  EXPECT_EQ(why(23, 255), "it is cut off: " + std::to_string(good.size()) +
                              " bytes can't hold 4278190082 shards");
  EXPECT_EQ(why(shard, 4), "shard 4 stands where shard 3 should");
  EXPECT_EQ(why(shard + 7, 255), "it is cut off in shard 3");
  EXPECT_EQ(why(shard + 19, 255), "it is cut off in the centre of shard 3");
  EXPECT_EQ(why(shard + 20, 1), "shard 3 has something where zeros belong");
  EXPECT_EQ(why(shard + 63, 1), "shard 3 has something where zeros belong");
  EXPECT_EQ(why(shard + 68, 1), "shard 3 has something where zeros belong");
  EXPECT_EQ(why(good.size() - 16, 'X'), "it does not end where it says");
  EXPECT_EQ(why(good.size() - 12, 1), "it does not end where it says");
  EXPECT_EQ(WhyNot({}), "it is cut off in its header");
}

TEST(Snapshot, NeverAllocatesMoreThanItsBytes) {
  // Nothing but small objects, of which memory needs the most per byte.
  Snapshot shards;
  shards.header.range = {0, 3000};
  for (uint32_t i = 0; i < 3000; ++i) {
    shards.shards.push_back(
        {.shard = i, .version = 0, .applied = {}, .centre = {}});
  }
  Snapshot workers;
  workers.header.range = {0, 1};
  workers.shards.resize(1);
  workers.shards[0].applied.resize(9000);
  for (const Snapshot& many : {shards, workers}) {
    const Bytes bytes = SnapshotBytes(many);
    largest_allocation = 0;
    EXPECT_TRUE(ParseSnapshot(bytes).ok());
    EXPECT_LE(largest_allocation, bytes.size());
  }
  // Every byte that is part of a count or a length, at its largest.
  const Bytes small = SnapshotBytes(MakeSmallSnapshot());
  constexpr size_t kErrorText = 200;
  for (size_t at = 0; at < small.size(); ++at) {
    Bytes bytes = small;
    bytes[at] = std::byte{255};
    MendCrcs(bytes);
    largest_allocation = 0;
    const bool ok = ParseSnapshot(bytes).ok();
    EXPECT_LE(largest_allocation, std::max(bytes.size(), kErrorText))
        << "byte " << at << (ok ? ", parsed" : ", refused");
  }
}

TEST(Snapshots, FallBackToTheOneBeforeWhenTheNewestIsDamaged) {
  const TempFolder folder;
  const Result<std::string> before = Write(folder.path(), MakeSmallSnapshot(1));
  const Result<std::string> newest = Write(folder.path(), MakeSmallSnapshot(2));
  ASSERT_TRUE(before.ok() && newest.ok());
  Bytes bytes = ReadBytes(*newest);
  bytes[150] ^= std::byte{16};  // In the first shard's centre.
  WriteBytes(*newest, bytes);

  Result<FoundSnapshot> found = FindSnapshot(folder.path());
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->path, *before);
  EXPECT_EQ(found->snapshot->header.number, 1u);
  EXPECT_EQ(found->damaged,
            std::vector<std::string>{*newest + ": the centre of shard 3 is "
                                               "damaged: its checksum is "
                                               "wrong"});
  EXPECT_EQ(found->next_number, 3u);

  WriteBytes(*before, std::span(bytes).first(100));
  found = FindSnapshot(folder.path());
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->snapshot.has_value());
  ASSERT_EQ(found->damaged.size(), 2u);
  EXPECT_EQ(found->damaged[1],
            *before + ": it is cut off: 100 bytes can't hold 2 shards");
}

TEST(Snapshots, AreKeptTwoAndNumberedUpwards) {
  const TempFolder folder;
  const std::string made = folder.path() + "/made";
  for (int number = 1; number <= 5; ++number) {
    const Result<FoundSnapshot> found = FindSnapshot(made);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(found->next_number, static_cast<uint64_t>(number));
    ASSERT_TRUE(Write(made, MakeSmallSnapshot(found->next_number)).ok());
  }
  EXPECT_EQ(NamesIn(made), (std::set{NameOf(4), NameOf(5)}));
  EXPECT_EQ(fs::status(made).permissions(), fs::perms::owner_all);

  for (const uint64_t number : {4, 5}) {
    const Result<std::string> late = Write(made, MakeSmallSnapshot(number));
    ASSERT_FALSE(late.ok());
    EXPECT_EQ(late.error().message,
              "snapshot " + std::to_string(number) +
                  " can't follow snapshot 5 in " + made +
                  "; is another aggregator writing there?");
  }
  EXPECT_EQ(NamesIn(made), (std::set{NameOf(4), NameOf(5)}));
}

TEST(Snapshots, IgnoreAndCleanUpWhatACrashBeforeTheRenameLeft) {
  const TempFolder folder;
  ASSERT_TRUE(Write(folder.path(), MakeSmallSnapshot(1)).ok());
  // Whole, and newer: it was not renamed, so nobody was told that it is safe.
  WriteBytes(folder.path() + "/" + NameOf(2, ".tmp"),
             SnapshotBytes(MakeSmallSnapshot(2)));
  WriteBytes(folder.path() + "/notes.tmp", {});
  WriteBytes(folder.path() + "/snapshot-3.tls", {});
  const Result<FoundSnapshot> found = FindSnapshot(folder.path());
  ASSERT_TRUE(found.ok() && found->snapshot.has_value());
  EXPECT_EQ(found->snapshot->header.number, 1u);
  EXPECT_TRUE(found->damaged.empty());
  EXPECT_EQ(found->next_number, 2u);

  ASSERT_TRUE(Write(folder.path(), MakeSmallSnapshot(7)).ok());
  EXPECT_EQ(NamesIn(folder.path()),
            (std::set<std::string>{NameOf(1), NameOf(7), "notes.tmp",
                                   "snapshot-3.tls"}));
}

TEST(Snapshots, AreDroppedWhenTheirWriterIsOrWhenAShardIsMissing) {
  const TempFolder folder;
  const Snapshot snapshot = MakeSmallSnapshot();
  {
    Result<SnapshotWriter> writer =
        SnapshotWriter::Create(folder.path(), snapshot.header);
    ASSERT_TRUE(writer.ok());
    EXPECT_EQ(NamesIn(folder.path()), std::set{NameOf(1, ".tmp")});
  }
  EXPECT_TRUE(NamesIn(folder.path()).empty());

  Result<SnapshotWriter> lacking =
      SnapshotWriter::Create(folder.path(), snapshot.header);
  ASSERT_TRUE(lacking->Add(snapshot.shards[0]).ok());
  EXPECT_EQ(lacking->Commit().error().message,
            "the snapshot " + folder.path() + "/" + NameOf(1) +
                " lacks shard 4 and was dropped");
  EXPECT_TRUE(NamesIn(folder.path()).empty());

  Result<SnapshotWriter> swapped =
      SnapshotWriter::Create(folder.path(), snapshot.header);
  const Status status = swapped->Add(snapshot.shards[1]);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "shard 4 was added to the snapshot " +
                                        folder.path() + "/" + NameOf(1) +
                                        " where shard 3 of [3, 5) was due");
  EXPECT_TRUE(NamesIn(folder.path()).empty());
  EXPECT_EQ(swapped->Commit().error().message, status.error().message);
}

TEST(Snapshots, OfAFolderThatIsNotThereAreNone) {
  const TempFolder folder;
  const Result<FoundSnapshot> found = FindSnapshot(folder.path() + "/none");
  ASSERT_TRUE(found.ok());
  EXPECT_FALSE(found->snapshot.has_value());
  EXPECT_EQ(found->next_number, 1u);
}

}  // namespace
}  // namespace tensorlightning
