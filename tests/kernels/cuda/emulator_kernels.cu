#include <cuda/atomic>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/shared_array.h"
#include "tests/kernels/cuda/emulator_kernels.h"

namespace tensorlightning::cuda {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / 32;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr unsigned kBins = 64;

template <bool kBarriers>
__global__ void BlockSumKernel(unsigned n, const int* __restrict__ x,
                               int* __restrict__ sums) {
  __shared__ SharedArray<int, kThreads> tree;
  const unsigned t = threadIdx.x;
  const unsigned i = blockIdx.x * kThreads + t;
  tree[t] = i < n ? x[i] : 0;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (kBarriers) __syncthreads();
    if (t < half) tree[t] += tree[t + half];
  }
  if (t == 0) sums[blockIdx.x] = tree[0];
}

__global__ void WarpScanKernel(const int* __restrict__ x,
                               int* __restrict__ sums) {
  const unsigned i = blockIdx.x * kThreads + threadIdx.x;
  const unsigned lane = threadIdx.x % 32;
  int sum = x[i];
  for (unsigned delta = 1; delta < 32; delta *= 2) {
    const int before = __shfl_up_sync(kAllLanes, sum, delta);
    if (lane >= delta) sum += before;
  }
  sums[i] = sum;
}

// Look-back state of one block: what the upper two bits say about the rest.
constexpr uint32_t kCount = 1u << 30;      // entries of this block
constexpr uint32_t kInclusive = 2u << 30;  // entries up to and with this block
constexpr uint32_t kNumber = (1u << 30) - 1;

using DeviceWord = ::cuda::atomic_ref<uint32_t, ::cuda::thread_scope_device>;

__device__ uint32_t LookBack(uint32_t* states, uint32_t tile, uint32_t count) {
  const uint32_t flag = tile == 0 ? kInclusive : kCount;
  DeviceWord(states[tile])
      .store(flag | count, ::cuda::std::memory_order_release);
  uint32_t before = 0;
  for (uint32_t i = tile; i-- > 0;) {
    uint32_t state = 0;
    while (state == 0) {
      state = DeviceWord(states[i]).load(::cuda::std::memory_order_acquire);
    }
    before += state & kNumber;
    if ((state & kInclusive) != 0) break;
  }
  if (tile != 0) {
    DeviceWord(states[tile])
        .store(kInclusive | (before + count),
               ::cuda::std::memory_order_release);
  }
  return before;
}

__global__ void __launch_bounds__(kThreads)
    CompactKernel(unsigned n, const int* __restrict__ x, int threshold,
                  uint32_t* ticket, uint32_t* states, uint32_t* positions,
                  uint32_t* total) {
  __shared__ SharedValue<uint32_t> tile;
  __shared__ SharedArray<uint32_t, kWarps> warp_counts;
  __shared__ SharedValue<uint32_t> before_block;
  const unsigned t = threadIdx.x;
  // Tiles in the order in which blocks start: a block waits only for blocks
  // that already run.
  if (t == 0) *tile = atomicAdd(ticket, 1u);
  __syncthreads();
  const unsigned i = *tile * kThreads + t;
  const bool keep = i < n && x[i] > threshold;
  const unsigned kept = __ballot_sync(kAllLanes, keep);
  const unsigned lane = t % 32;
  const unsigned warp = t / 32;
  if (lane == 0) warp_counts[warp] = __popc(kept);
  __syncthreads();
  if (t == 0) {
    uint32_t sum = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      const uint32_t count = warp_counts[w];
      warp_counts[w] = sum;
      sum += count;
    }
    *before_block = LookBack(states, *tile, sum);
    if (*tile == gridDim.x - 1) *total = *before_block + sum;
  }
  __syncthreads();
  const unsigned rank = __popc(kept & ((1u << lane) - 1));
  if (keep) positions[*before_block + warp_counts[warp] + rank] = i;
}

__global__ void HistogramKernel(unsigned n, const uint32_t* __restrict__ x,
                                uint32_t* bins) {
  __shared__ SharedArray<uint32_t, kBins> local;
  if (threadIdx.x < kBins) local[threadIdx.x] = 0;
  __syncthreads();
  const unsigned stride = gridDim.x * blockDim.x;
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    atomicAdd(&local[x[i] % kBins], 1u);
  }
  __syncthreads();
  if (threadIdx.x < kBins) atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}

template <bool kSync>
__global__ void RotateKernel(const int* __restrict__ x,
                             int* __restrict__ rotated) {
  __shared__ int slots[kThreads];  // plain shared memory works too
  const unsigned t = threadIdx.x;
  slots[t] = x[blockIdx.x * kThreads + t];
  if (kSync) __syncwarp();
  const unsigned neighbour = t / 32 * 32 + (t + 1) % 32;
  rotated[blockIdx.x * kThreads + t] = slots[neighbour];
}

template <bool kAtomic>
__global__ void LargestBlockKernel(uint32_t* largest) {
  if (threadIdx.x != 0) return;
  if (kAtomic) {
    atomicMax(largest, blockIdx.x);
  } else if (*largest < blockIdx.x) {
    *largest = blockIdx.x;
  }
}

__global__ void UninitialisedKernel(uint32_t* words) {
  __shared__ SharedArray<uint32_t, 32> never_written;
  words[blockIdx.x * 32 + threadIdx.x] = never_written[threadIdx.x];
}

constexpr unsigned kCollectives = 10;

__global__ void CollectivesKernel(uint32_t* words) {
  const unsigned lane = threadIdx.x;
  const unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  uint32_t* out = words + lane * kCollectives;
  out[0] = __ballot_sync(half, lane % 3 == 0);
  out[1] = __any_sync(kAllLanes, lane == 7);
  out[2] = __all_sync(half, lane < 16);
  out[3] = __shfl_sync(kAllLanes, lane, 5, 8);
  out[4] = __shfl_up_sync(kAllLanes, lane, 3u, 8);
  out[5] = __shfl_down_sync(kAllLanes, lane, 3u, 8);
  out[6] = __shfl_xor_sync(kAllLanes, lane, 12, 8);
  out[7] = static_cast<uint32_t>(
      __shfl_xor_sync(kAllLanes, 1ull << 40 | lane, 1) >> 32);
  out[8] = __syncthreads_count(lane < 9);
  out[9] = __syncthreads_or(lane == 40) * 2 + __syncthreads_and(lane < 32);
}

__global__ void CopyKernel(unsigned n, const int* from, int* to) {
  if (threadIdx.x < n) to[threadIdx.x] = from[threadIdx.x];
}

__global__ void MistakeKernel(Mistake mistake, uint32_t* flag, uint32_t* out) {
  __shared__ SharedArray<uint32_t, 32> shared;
  const unsigned t = threadIdx.x;
  uint32_t* const word = out + blockIdx.x * blockDim.x + t;
  switch (mistake) {
    case Mistake::kThreadEndsBeforeBarrier:
      if (t == 5) return;
      __syncthreads();
      break;
    case Mistake::kBarrierInOneBranch:
      if (t < 32) __syncthreads();
      break;
    case Mistake::kBarrierInBothBranches:
      if (t < 32) {  // NOLINT(bugprone-branch-clone)
        __syncthreads();
      } else {
        __syncthreads();
      }
      break;
    case Mistake::kLaneWaitsAtBarrier:
      if (t % 32 == 3) {
        __syncthreads();
      } else {
        __syncwarp();
        __syncthreads();
      }
      break;
    case Mistake::kLaneEndsBeforeShuffle:
      if (t == 9) return;
      *word = __shfl_sync(kAllLanes, t, 0);
      break;
    case Mistake::kLanesThatDoNotExist:
      if (t >= 32) __syncwarp(kAllLanes);
      break;
    case Mistake::kDifferentCollectives:
      if (t % 2 == 0) {
        __syncwarp();
      } else {
        *word = __ballot_sync(kAllLanes, 1);
      }
      break;
    case Mistake::kMaskWithoutSelf:
      __syncwarp(0xfffffffeu);
      break;
    case Mistake::kShuffleFromOutsideMask:
      if (t < 16) *word = __shfl_sync(0x0000ffffu, t, 20);
      break;
    case Mistake::kWidthOfThree:
      *word = __shfl_sync(kAllLanes, t, 0, 3);
      break;
    case Mistake::kSharedIndexTooLarge:
      shared[t] = t;
      break;
    case Mistake::kSpinOnLaterBlock:
      if (blockIdx.x == 0) {
        while (DeviceWord(*flag).load(::cuda::std::memory_order_acquire) != 1) {
        }
      } else {
        DeviceWord(*flag).store(1, ::cuda::std::memory_order_release);
      }
      break;
    case Mistake::kTrap:
      if (t == 3) __trap();
      break;
  }
}

namespace {

// Device memory with the contents of a vector; copies back on request.
template <class T>
class Buffer {
 public:
  explicit Buffer(const std::vector<T>& contents) : size_(contents.size()) {
    error_ = cudaMalloc(&data_, size_ * sizeof(T));
    if (error_ != cudaSuccess) return;
    error_ = cudaMemcpy(data_, contents.data(), size_ * sizeof(T),
                        cudaMemcpyHostToDevice);
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return data_; }
  cudaError_t CopyTo(std::vector<T>* out) {
    out->resize(size_);
    return cudaMemcpy(out->data(), data_, size_ * sizeof(T),
                      cudaMemcpyDeviceToHost);
  }

 private:
  size_t size_;
  T* data_ = nullptr;
  cudaError_t error_;
};

unsigned Blocks(size_t n) {
  return static_cast<unsigned>((n + kThreads - 1) / kThreads);
}

// The first of the launch's and the copy's errors.
template <class T>
cudaError_t Finish(cudaError_t launch, Buffer<T>& buffer, std::vector<T>* out) {
  return launch != cudaSuccess ? launch : buffer.CopyTo(out);
}

}  // namespace

cudaError_t BlockSums(const std::vector<int>& x, bool barriers,
                      std::vector<int>* sums) {
  Buffer<int> in(x);
  Buffer<int> out(std::vector<int>(Blocks(x.size())));
  return Finish(Launch(barriers ? BlockSumKernel<true> : BlockSumKernel<false>,
                       Blocks(x.size()), kThreads, nullptr, x.size(), in.data(),
                       out.data()),
                out, sums);
}

cudaError_t WarpScan(const std::vector<int>& x, std::vector<int>* sums) {
  Buffer<int> in(x);
  Buffer<int> out(x);
  return Finish(Launch(WarpScanKernel, Blocks(x.size()), kThreads, nullptr,
                       in.data(), out.data()),
                out, sums);
}

cudaError_t Compact(const std::vector<int>& x, int threshold,
                    std::vector<uint32_t>* positions) {
  const unsigned blocks = Blocks(x.size());
  Buffer<int> in(x);
  Buffer<uint32_t> states(std::vector<uint32_t>(blocks, 0));
  Buffer<uint32_t> ticket({0});
  Buffer<uint32_t> total({0});
  Buffer<uint32_t> out(std::vector<uint32_t>(x.size()));
  cudaError_t error =
      Launch(CompactKernel, blocks, kThreads, nullptr, x.size(), in.data(),
             threshold, ticket.data(), states.data(), out.data(), total.data());
  std::vector<uint32_t> count;
  error = Finish(error, total, &count);
  error = Finish(error, out, positions);
  if (error == cudaSuccess) positions->resize(count[0]);
  return error;
}

cudaError_t Histogram(const std::vector<uint32_t>& x,
                      std::vector<uint32_t>* bins) {
  Buffer<uint32_t> in(x);
  Buffer<uint32_t> out(std::vector<uint32_t>(kBins, 0));
  return Finish(Launch(HistogramKernel, 4, kThreads, nullptr, x.size(),
                       in.data(), out.data()),
                out, bins);
}

cudaError_t RotateLanes(const std::vector<int>& x, bool sync,
                        std::vector<int>* rotated) {
  Buffer<int> in(x);
  Buffer<int> out(x);
  return Finish(
      Launch(sync ? RotateKernel<true> : RotateKernel<false>, Blocks(x.size()),
             kThreads, nullptr, in.data(), out.data()),
      out, rotated);
}

cudaError_t LargestBlock(unsigned blocks, bool atomic, uint32_t* largest) {
  Buffer<uint32_t> out({0});
  std::vector<uint32_t> word;
  const cudaError_t error = Finish(
      Launch(atomic ? LargestBlockKernel<true> : LargestBlockKernel<false>,
             blocks, 32, nullptr, out.data()),
      out, &word);
  if (error == cudaSuccess) *largest = word[0];
  return error;
}

cudaError_t ReadUninitialised(std::vector<uint32_t>* words) {
  Buffer<uint32_t> out(std::vector<uint32_t>(64));
  return Finish(Launch(UninitialisedKernel, 2, 32, nullptr, out.data()), out,
                words);
}

cudaError_t Collectives(std::vector<uint32_t>* words) {
  Buffer<uint32_t> out(std::vector<uint32_t>(32 * kCollectives));
  return Finish(Launch(CollectivesKernel, 1, 32, nullptr, out.data()), out,
                words);
}

cudaError_t ReadPastEnd() {
  Buffer<int> from({1, 2, 3});
  Buffer<int> to({0, 0, 0, 0});
  return Launch(CopyKernel, 1, 32, nullptr, 4, from.data(), to.data());
}

cudaError_t Make(Mistake mistake) {
  const unsigned threads = mistake == Mistake::kLanesThatDoNotExist ? 50 : 64;
  Buffer<uint32_t> flag({0});
  Buffer<uint32_t> out(std::vector<uint32_t>(2 * threads, 0));
  return Launch(MistakeKernel, 2, threads, nullptr, mistake, flag.data(),
                out.data());
}

}  // namespace tensorlightning::cuda
