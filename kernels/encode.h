// Writing a code (see code_format.h), group by group.
//
//   Encoder encoder(out, entries, ValueCode::kBits4);
//   for each group of 65,536 entries, in order: encoder.AddGroup(kept);
//   Result<size_t> bytes = encoder.Finish();
//
// Whole vectors go through exchange.h, which selects and quantises too.
#ifndef TENSORLIGHTNING_KERNELS_ENCODE_H_
#define TENSORLIGHTNING_KERNELS_ENCODE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/chunk.h"
#include "kernels/code_format.h"
#include "kernels/quantise.h"
#include "kernels/result.h"

namespace tensorlightning {

// What is kept of one group: ascending positions within the group, and the
// quantised value of each. Large (390 KB): part of a Workspace, never a local.
struct GroupEntries {
  // Vector code stores whole registers; what lies past `count` is scrap.
  static constexpr size_t kSlack = 16;

  uint32_t count = 0;
  std::array<uint32_t, kGroupChunks + 1> chunk_begin{};  // Into positions.
  std::array<uint16_t, kGroupChunks> scales{};
  std::array<uint16_t, kGroupEntries + kSlack> positions;
  std::array<uint32_t, kGroupEntries + kSlack> symbols;
};

class Encoder {
 public:
  Encoder(std::span<std::byte> out, size_t entries, ValueCode code);

  // Call once per group, in order.
  void AddGroup(const GroupEntries& kept);

  // Completes the header. The number of bytes written, or an error when `out`
  // had no room (MaxCodeBytes() always is enough).
  Result<size_t> Finish();

 private:
  std::span<std::byte> out_;
  size_t entries_;
  ValueCode code_;
  size_t groups_ = 0;
  size_t used_ = kCodeHeaderBytes;
  uint64_t kept_ = 0;
  bool full_ = false;
};

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_KERNELS_ENCODE_H_
