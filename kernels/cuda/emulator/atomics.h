// CUDA's atomic functions, all relaxed as on the device, for the types that
// sm_75 has them for. Each may let another thread of the block run first.
#ifndef KERNELS_CUDA_EMULATOR_ATOMICS_H_
#define KERNELS_CUDA_EMULATOR_ATOMICS_H_

// The names and types are CUDA's.
// NOLINTBEGIN(google-runtime-int)

#include <atomic>
#include <concepts>
#include <type_traits>

#include "kernels/cuda/emulator/runtime.h"

namespace tensorlightning::cuda::emulator::internal {

template <class T>
concept Integer32Or64 = std::same_as<T, int> || std::same_as<T, unsigned> ||
    std::same_as<T, unsigned long long>;
template <class T>
concept Addable =
    Integer32Or64<T> || std::same_as<T, float> || std::same_as<T, double>;
template <class T>
concept Exchangeable = Integer32Or64<T> || std::same_as<T, float>;
template <class T>
concept Comparable = Integer32Or64<T> || std::same_as<T, long long>;

// Replaces the value by update(value); returns the old one.
template <class T, class Update>
T Modify(T* address, std::memory_order order, Update update) {
  const std::atomic_ref<T> cell(*address);
  T old = cell.load(std::memory_order_relaxed);
  while (!cell.compare_exchange_weak(old, update(old), order,
                                     std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace tensorlightning::cuda::emulator::internal

// The value's type must not take part in deduction: CUDA converts it.
#define TL_EMULATOR_ATOMIC(name, concept_name, expression)             \
  template <tensorlightning::cuda::emulator::internal::concept_name T> \
  T name(T* address, std::type_identity_t<T> value) {                  \
    tensorlightning::cuda::emulator::internal::Preempt();              \
    return tensorlightning::cuda::emulator::internal::Modify(          \
        address, std::memory_order_relaxed,                            \
        [&]([[maybe_unused]] T old) -> T { return expression; });      \
  }

TL_EMULATOR_ATOMIC(atomicAdd, Addable, old + value)
TL_EMULATOR_ATOMIC(atomicMin, Comparable, value < old ? value : old)
TL_EMULATOR_ATOMIC(atomicMax, Comparable, value > old ? value : old)
TL_EMULATOR_ATOMIC(atomicAnd, Integer32Or64, old& value)
TL_EMULATOR_ATOMIC(atomicOr, Integer32Or64, old | value)
TL_EMULATOR_ATOMIC(atomicXor, Integer32Or64, old ^ value)
TL_EMULATOR_ATOMIC(atomicExch, Exchangeable, value)

#undef TL_EMULATOR_ATOMIC

// CUDA has no 64-bit unsigned subtraction.
template <class T>
requires(std::same_as<T, int> || std::same_as<T, unsigned>) T
    atomicSub(T* address, std::type_identity_t<T> value) {
  tensorlightning::cuda::emulator::internal::Preempt();
  return std::atomic_ref<T>(*address).fetch_sub(value,
                                                std::memory_order_relaxed);
}

template <tensorlightning::cuda::emulator::internal::Integer32Or64 T>
T atomicCAS(T* address, std::type_identity_t<T> expected,
            std::type_identity_t<T> desired) {
  tensorlightning::cuda::emulator::internal::Preempt();
  std::atomic_ref<T>(*address).compare_exchange_strong(
      expected, desired, std::memory_order_relaxed);
  return expected;
}

// NOLINTEND(google-runtime-int)

#endif  // KERNELS_CUDA_EMULATOR_ATOMICS_H_
