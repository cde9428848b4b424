// A record of every push, written before it is sent: what an aggregator may
// have applied when this process, or the aggregator, was killed.
//
//   u32 rank  u32 shard  u64 sequence  u32 bytes  code     little-endian
//
// One write each, at the end of the file, so that records of several processes
// don't mix and a killed process leaves whole ones.
#ifndef TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LEDGER_H_
#define TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LEDGER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

class Ledger {
 public:
  static Result<std::unique_ptr<Ledger>> Open(const std::string& path);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  // From any thread.
  void Add(uint32_t rank, uint32_t shard, uint64_t sequence,
           std::span<const std::byte> code);
  // The first record that could not be written.
  Status status() const;

 private:
  Ledger(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  const int fd_;
  const std::string path_;
  mutable std::mutex mutex_;
  std::vector<std::byte> record_;
  Status status_ = Done{};
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_TOOLS_TL_LOAD_LEDGER_H_
