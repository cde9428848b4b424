// What a model consists of: the ordered list of its tensors, seen as one flat
// float32 vector.
//
// Both ends of a connection must mean the same model. Its fingerprint travels
// in the handshake and in every frame; when two differ, DescribeDifference()
// names the first tensor that does.
//
//   Result<Layout> layout = Layout::Make({
//       {"dense/kernel", {784, 128}, DType::kFloat32},
//       {"dense/bias", {128}, DType::kFloat32}});
#ifndef TENSORLIGHTNING_COMM_LAYOUT_H_
#define TENSORLIGHTNING_COMM_LAYOUT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/result.h"

namespace tensorlightning {

// The type a tensor has in its framework. It travels as float32 in any case.
enum class DType : uint8_t { kFloat32, kFloat16, kBfloat16, kFloat64 };
inline constexpr int kDTypes = 4;
const char* NameOf(DType dtype);

struct Tensor {
  std::string name;
  std::vector<uint64_t> shape;  // Empty: a scalar.
  DType dtype = DType::kFloat32;

  // The product of the shape. Layout::Make() has made sure that it fits.
  size_t entries() const;
  // "dense/kernel float32 [784, 128]"
  std::string ToString() const;

  bool operator==(const Tensor&) const = default;
};

using Fingerprint = std::array<std::byte, 32>;  // SHA-256 of Serialise().

class Layout {
 public:
  // Limits on what Parse() will build from bytes of a stranger.
  static constexpr size_t kMaxTensors = 1 << 16;
  static constexpr size_t kMaxNameBytes = 1024;
  static constexpr size_t kMaxDimensions = 16;
  static constexpr uint64_t kMaxEntries = uint64_t{1} << 40;
  static constexpr size_t kMaxSerialisedBytes = size_t{15} << 20;

  // Errors: no tensors, an empty tensor, two of one name, a control character
  // in a name, beyond the limits. Parse() refuses what Make() does.
  static Result<Layout> Make(std::vector<Tensor> tensors);
  static Result<Layout> Parse(std::span<const std::byte> bytes);
  std::vector<std::byte> Serialise() const;

  std::span<const Tensor> tensors() const { return tensors_; }
  uint64_t entries() const { return entries_; }
  const Fingerprint& fingerprint() const { return fingerprint_; }
  // Its first 8 bytes as a little-endian number: what frames carry.
  uint64_t short_fingerprint() const;

 private:
  Layout(std::vector<Tensor> tensors, uint64_t entries,
         const Fingerprint& fingerprint);

  std::vector<Tensor> tensors_;
  uint64_t entries_;
  Fingerprint fingerprint_;
};

// "tensor 3 is 'dense/kernel' float32 [784, 128] here and 'dense/kernel'
// float32 [784, 64] there", counted from 0; empty when the layouts are equal.
std::string DescribeDifference(const Layout& here, const Layout& there);

}  // namespace tensorlightning

#endif  // TENSORLIGHTNING_COMM_LAYOUT_H_
