// The emulator's view of ASan and TSan, through weak symbols: one compiled
// runtime works in plain, ASan and TSan programs and finds out when it runs.
//
// The runtime itself must not be instrumented by TSan (fibers do not
// synchronise when they switch, so the scheduler would race with everyone).
#ifndef KERNELS_CUDA_EMULATOR_SANITIZERS_H_
#define KERNELS_CUDA_EMULATOR_SANITIZERS_H_

#include <cstddef>

#ifdef __SANITIZE_THREAD__
#error "compile the emulator's runtime with -fno-sanitize=thread"
#endif

// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" {
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
[[gnu::weak]] void __tsan_acquire(void* address);
[[gnu::weak]] void __tsan_release(void* address);
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** fake_stack,
                                                  const void* bottom,
                                                  size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* fake_stack,
                                                   const void** bottom,
                                                   size_t* bytes);
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* begin,
                                               size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* begin,
                                                 size_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace tensorlightning::cuda::emulator {

inline bool TsanActive() { return __tsan_create_fiber != nullptr; }
inline bool AsanActive() { return __asan_poison_memory_region != nullptr; }

// What happened before a Release of a cell happened before what follows a later
// Acquire of it. Only TSan listens; the order itself comes from the scheduler.
inline void Acquire(void* cell) {
  if (__tsan_acquire != nullptr) __tsan_acquire(cell);
}
inline void Release(void* cell) {
  if (__tsan_release != nullptr) __tsan_release(cell);
}

// The process's only T, never destroyed, since a static destructor may still
// launch a kernel. TSan cannot see the guard of the static in code that it does
// not instrument, so the edge from the constructor is made here.
template <class T>
T& Only() {
  static T& object = *[] {
    T* const made = new T;
    Release(made);
    return made;
  }();
  Acquire(&object);
  return object;
}

}  // namespace tensorlightning::cuda::emulator

#endif  // KERNELS_CUDA_EMULATOR_SANITIZERS_H_
