#include "comm/layout.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "comm/wire_format.h"

namespace tensorlightning {
namespace {

Error Invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, "layout: " + std::move(message)};
}

Error Corrupt(std::string message) {
  return {ErrorCode::kCorrupt, "layout: " + std::move(message)};
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

// How to speak of a tensor whose name may be what is wrong with it.
std::string Called(size_t index, const Tensor& tensor) {
  const bool printable = tensor.name.size() <= Layout::kMaxNameBytes &&
                         std::ranges::none_of(tensor.name, IsControl);
  const std::string number = "tensor " + std::to_string(index);
  return printable ? number + " '" + tensor.name + "'" : number;
}

std::string Described(const Tensor& tensor) {
  Tensor quoted = tensor;
  quoted.name = "'" + tensor.name + "'";
  return quoted.ToString();
}

// The product of the shape; nothing when it is beyond kMaxEntries.
std::optional<uint64_t> CountOf(const Tensor& tensor) {
  if (std::ranges::count(tensor.shape, 0) > 0) return 0;
  uint64_t product = 1;
  for (const uint64_t dimension : tensor.shape) {
    if (dimension > Layout::kMaxEntries / product) return std::nullopt;
    product *= dimension;
  }
  return product;
}

std::string TooManyEntries() {
  return "more than " + std::to_string(Layout::kMaxEntries) +
         " entries; the shapes can't be right";
}

size_t SerialisedBytes(const Tensor& tensor) {
  return sizeof(uint16_t) + tensor.name.size() + 2 * sizeof(uint8_t) +
         tensor.shape.size() * sizeof(uint64_t);
}

// What can be wrong with one tensor alone.
Status Check(size_t index, const Tensor& tensor) {
  if (tensor.name.size() > Layout::kMaxNameBytes) {
    return Invalid(Called(index, tensor) + " has a name of " +
                   std::to_string(tensor.name.size()) +
                   " bytes; the longest allowed has " +
                   std::to_string(Layout::kMaxNameBytes));
  }
  if (std::ranges::any_of(tensor.name, IsControl)) {
    return Invalid(Called(index, tensor) +
                   " has a control character in its name; rename it");
  }
  if (static_cast<int>(tensor.dtype) >= kDTypes) {
    return Invalid(Called(index, tensor) + " has the unknown type " +
                   std::to_string(static_cast<int>(tensor.dtype)));
  }
  if (tensor.shape.size() > Layout::kMaxDimensions) {
    return Invalid(Called(index, tensor) + " has " +
                   std::to_string(tensor.shape.size()) +
                   " dimensions; at most " +
                   std::to_string(Layout::kMaxDimensions) + " are allowed");
  }
  const std::optional<uint64_t> count = CountOf(tensor);
  if (!count)
    return Invalid(Called(index, tensor) + " has " + TooManyEntries());
  if (*count == 0) {
    return Invalid(Called(index, tensor) +
                   " is empty; leave it out, there is nothing to exchange");
  }
  return Done{};
}

std::vector<std::byte> SerialiseAll(std::span<const Tensor> tensors) {
  std::vector<std::byte> bytes;
  FieldWriter out(bytes);
  out.U32(static_cast<uint32_t>(tensors.size()));
  for (const Tensor& tensor : tensors) {
    out.String16(tensor.name);
    out.U8(static_cast<uint8_t>(tensor.dtype));
    out.U8(static_cast<uint8_t>(tensor.shape.size()));
    for (const uint64_t dimension : tensor.shape) out.U64(dimension);
  }
  return bytes;
}

}  // namespace

const char* NameOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat16:
      return "float16";
    case DType::kBfloat16:
      return "bfloat16";
    case DType::kFloat64:
      return "float64";
  }
  return "unknown";
}

size_t Tensor::entries() const {
  size_t product = 1;
  for (const uint64_t dimension : shape) product *= dimension;
  return product;
}

std::string Tensor::ToString() const {
  std::string text = name + " " + NameOf(dtype) + " [";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

Result<Layout> Layout::Make(std::vector<Tensor> tensors) {
  if (tensors.empty()) return Invalid("no tensors; a model has at least one");
  if (tensors.size() > kMaxTensors) {
    return Invalid(std::to_string(tensors.size()) + " tensors; at most " +
                   std::to_string(kMaxTensors) + " are allowed");
  }
  uint64_t entries = 0;
  size_t serialised = sizeof(uint32_t);
  std::unordered_set<std::string_view> names;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Status checked = Check(i, tensors[i]);
    if (!checked.ok()) return checked.error();
    if (!names.insert(tensors[i].name).second) {
      return Invalid(Called(i, tensors[i]) +
                     " has the name of an earlier one; names must differ");
    }
    entries += tensors[i].entries();
    if (entries > kMaxEntries) return Invalid(TooManyEntries());
    serialised += SerialisedBytes(tensors[i]);
  }
  if (serialised > kMaxSerialisedBytes) {
    return Invalid("its description takes " + std::to_string(serialised) +
                   " bytes; at most " + std::to_string(kMaxSerialisedBytes) +
                   " can be sent. Give the tensors shorter names");
  }
  const std::vector<std::byte> bytes = SerialiseAll(tensors);
  Fingerprint fingerprint;
  if (EVP_Digest(bytes.data(), bytes.size(),
                 reinterpret_cast<unsigned char*>(fingerprint.data()), nullptr,
                 EVP_sha256(), nullptr) != 1) {
    return Error{ErrorCode::kUnavailable,
                 "layout: OpenSSL could not compute a SHA-256"};
  }
  return Layout(std::move(tensors), entries, fingerprint);
}

Layout::Layout(std::vector<Tensor> tensors, uint64_t entries,
               const Fingerprint& fingerprint)
    : tensors_(std::move(tensors)),
      entries_(entries),
      fingerprint_(fingerprint) {}

Result<Layout> Layout::Parse(std::span<const std::byte> bytes) {
  FieldReader in(bytes);
  const uint32_t count = in.U32();
  // Nothing is reserved: a count costs the sender nothing, tensors do.
  if (count > kMaxTensors) {
    return Corrupt("says it has " + std::to_string(count) +
                   " tensors; at most " + std::to_string(kMaxTensors) +
                   " are allowed");
  }
  std::vector<Tensor> tensors;
  for (uint32_t i = 0; i < count && !in.too_short(); ++i) {
    Tensor& tensor = tensors.emplace_back();
    tensor.name = in.String16();
    tensor.dtype = static_cast<DType>(in.U8());
    const uint8_t dimensions = in.U8();
    for (uint8_t d = 0; d < dimensions && !in.too_short(); ++d) {
      tensor.shape.push_back(in.U64());
    }
  }
  if (!in.Finished()) {
    return Corrupt(in.too_short() ? "ends too early" : "goes on after its end");
  }
  Result<Layout> layout = Make(std::move(tensors));
  // No layout of ours serialises to this: not the caller's mistake.
  if (!layout.ok() && layout.error().code == ErrorCode::kInvalidArgument) {
    return Error{ErrorCode::kCorrupt, layout.error().message};
  }
  return layout;
}

std::vector<std::byte> Layout::Serialise() const {
  return SerialiseAll(tensors_);
}

uint64_t Layout::short_fingerprint() const {
  uint64_t number = 0;
  std::memcpy(&number, fingerprint_.data(), sizeof(number));
  return number;
}

std::string DescribeDifference(const Layout& here, const Layout& there) {
  const std::span<const Tensor> ours = here.tensors();
  const std::span<const Tensor> theirs = there.tensors();
  const size_t common = std::min(ours.size(), theirs.size());
  for (size_t i = 0; i < common; ++i) {
    if (ours[i] == theirs[i]) continue;
    return "tensor " + std::to_string(i) + " is " + Described(ours[i]) +
           " here and " + Described(theirs[i]) + " there";
  }
  if (ours.size() == theirs.size()) return "";
  const bool more_here = ours.size() > theirs.size();
  return "tensor " + std::to_string(common) + " is " +
         Described(more_here ? ours[common] : theirs[common]) +
         (more_here ? " here and missing there" : " there and missing here") +
         " (" + std::to_string(ours.size()) + " tensors here, " +
         std::to_string(theirs.size()) + " there)";
}

}  // namespace tensorlightning
