// Applying a message on the device. A block per group: its first thread reads
// the index, which is a chain of variable-length codes, into memory; then all
// threads look up their entries' values and add them.
#include "kernels/chunk.h"
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/launch.h"
#include "kernels/group_reader.h"

namespace tensorlightning::cuda {
namespace {

struct Target {
  float* y;
  float* also;  // May be null.
  float scale;  // Of y alone.
};

template <ValueCode kCode>
__device__ void AddEntries(const Group& group, const float* steps,
                           const uint16_t* positions, size_t base, Target to) {
  for (uint32_t i = threadIdx.x; i < group.count; i += kThreads) {
    const uint32_t position = positions[i];
    const float value = Dequantise(kCode, SymbolAt<kCode>(group.values, i),
                                   steps[position >> kChunkShift]);
    to.y[base + position] += to.scale == 1.0f ? value : to.scale * value;
    if (to.also != nullptr) to.also[base + position] += value;
  }
}

// offsets: where each group's bytes begin; entries_before: how many entries
// the groups before it keep.
template <ValueCode kCode>
__global__ void __launch_bounds__(kThreads, 2)
    DecodeGroups(const std::byte* bytes, const Counter* offsets,
                 const Counter* entries_before, size_t entries,
                 uint16_t* positions, Target to) {
  __shared__ SharedArray<float, kGroupChunks> steps;
  const size_t g = blockIdx.x;
  Group group;
  ReadGroup(bytes + offsets[g], bytes + offsets[g + 1],
            SpanOf(entries, g, kGroupEntries), kCode, &group);
  uint16_t* const own = positions + entries_before[g];
  if (threadIdx.x == 0 && group.count > 0) {
    uint16_t* out = own;
    ForEachPosition<false>(group, [&out](uint32_t position) {
      *out++ = static_cast<uint16_t>(position);
    });
  }
  if (threadIdx.x < kGroupChunks) {
    const uint32_t bit = 1u << threadIdx.x;
    float step = 0.0f;
    if ((group.mask & bit) != 0) {
      step = FromUpperHalf(
          Load16(group.scales + 2 * __popc(group.mask & (bit - 1))));
    }
    steps[threadIdx.x] = step;
  }
  __syncthreads();
  AddEntries<kCode>(group, steps.data(), own, g * kGroupEntries, to);
}

template <ValueCode kCode>
cudaError_t LaunchDecode(const Message& message, DeviceWorkspace& workspace,
                         Target to, cudaStream_t stream) {
  return Launch(
      DecodeGroups<kCode>, static_cast<uint32_t>(GroupCount(message.entries())),
      kThreads, stream, workspace.message.get(),
      workspace.message_offsets.get(), workspace.message_entries.get(),
      message.entries(), workspace.message_positions.get(), to);
}

// Copies the message and where its groups are to the device.
Status Upload(const Message& message, DeviceWorkspace& workspace,
              std::vector<Counter>& offsets,
              std::vector<Counter>& entries_before, cudaStream_t stream) {
  const size_t groups = GroupCount(message.entries());
  const std::byte* const begin = message.bytes().data();
  const std::byte* const end = begin + message.bytes().size();
  const std::byte* at = begin + kCodeHeaderBytes;
  offsets.resize(groups + 1);
  entries_before.resize(groups + 1);
  Counter kept = 0;
  for (size_t g = 0; g < groups; ++g) {
    offsets[g] = static_cast<Counter>(at - begin);
    entries_before[g] = kept;
    Group group;
    at = ReadGroup(at, end, SpanOf(message.entries(), g, kGroupEntries),
                   message.value_code(), &group);
    kept += group.count;
  }
  offsets[groups] = static_cast<Counter>(at - begin);

  Status status = workspace.message.Reserve(message.bytes().size());
  if (status.ok()) status = workspace.message_offsets.Reserve(groups + 1);
  if (status.ok()) status = workspace.message_entries.Reserve(groups + 1);
  if (status.ok()) status = workspace.message_positions.Reserve(kept + 1);
  if (!status.ok()) return status;
  const auto copy = [&](auto* to, const auto* from, size_t bytes) {
    if (!status.ok()) return;
    status = ToStatus(
        cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
        "copy of the message");
  };
  const size_t table_bytes = (groups + 1) * sizeof(Counter);
  copy(workspace.message.get(), begin, message.bytes().size());
  copy(workspace.message_offsets.get(), offsets.data(), table_bytes);
  copy(workspace.message_entries.get(), entries_before.data(), table_bytes);
  return status;
}

Status Decode(const Message& message, Target to, DeviceWorkspace& workspace,
              cudaStream_t stream) {
  if (message.kept() == 0) return Done{};
  std::vector<Counter> offsets;
  std::vector<Counter> entries_before;
  Status status = Upload(message, workspace, offsets, entries_before, stream);
  if (!status.ok()) return status;
  cudaError_t code = cudaSuccess;
  switch (message.value_code()) {
    case ValueCode::kFloat32:
      code = LaunchDecode<ValueCode::kFloat32>(message, workspace, to, stream);
      break;
    case ValueCode::kBfloat16:
      code = LaunchDecode<ValueCode::kBfloat16>(message, workspace, to, stream);
      break;
    case ValueCode::kBits8:
      code = LaunchDecode<ValueCode::kBits8>(message, workspace, to, stream);
      break;
    case ValueCode::kBits4:
      code = LaunchDecode<ValueCode::kBits4>(message, workspace, to, stream);
      break;
    case ValueCode::kBits2:
      code = LaunchDecode<ValueCode::kBits2>(message, workspace, to, stream);
      break;
  }
  // The tables above must live until they are copied.
  if (code == cudaSuccess) code = cudaStreamSynchronize(stream);
  return ToStatus(code, "decode");
}

}  // namespace

Status DecodeAdd(const Message& message, float* y, float scale,
                 DeviceWorkspace& workspace, cudaStream_t stream) {
  return Decode(message, {y, nullptr, scale}, workspace, stream);
}

Status ApplyPush(const Message& push, float* centre, float* view,
                 DeviceWorkspace& workspace, cudaStream_t stream) {
  Status status = CheckNotHuge(push, "the push");
  if (!status.ok()) return status;
  return Decode(push, {centre, view, 1.0f}, workspace, stream);
}

}  // namespace tensorlightning::cuda
