// CUDA's built-in vector types and dim3, as far as our kernels use them, with
// the sizes and alignments that the CUDA Programming Guide states.
#ifndef KERNELS_CUDA_EMULATOR_VECTOR_TYPES_H_
#define KERNELS_CUDA_EMULATOR_VECTOR_TYPES_H_

struct uint3 {
  unsigned x, y, z;
};

// CUDA converts freely.
// NOLINTBEGIN(google-explicit-constructor)
struct dim3 {
  constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1)
      : x(vx), y(vy), z(vz) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
  constexpr operator uint3() const { return {x, y, z}; }

  unsigned x, y, z;
};
// NOLINTEND(google-explicit-constructor)

// NOLINTBEGIN(bugprone-macro-parentheses)
#define TL_EMULATOR_VECTOR(name, type)                                    \
  struct alignas(2 * sizeof(type)) name##2 {                              \
    type x, y;                                                            \
  };                                                                      \
  struct alignas(4 * sizeof(type) > 16 ? 16 : 4 * sizeof(type)) name##4 { \
    type x, y, z, w;                                                      \
  };                                                                      \
  constexpr name##2 make_##name##2(type x, type y) { return {x, y}; }     \
  constexpr name##4 make_##name##4(type x, type y, type z, type w) {      \
    return {x, y, z, w};                                                  \
  }
// NOLINTEND(bugprone-macro-parentheses)

TL_EMULATOR_VECTOR(uchar, unsigned char)
TL_EMULATOR_VECTOR(ushort, unsigned short)
TL_EMULATOR_VECTOR(int, int)
TL_EMULATOR_VECTOR(uint, unsigned)
TL_EMULATOR_VECTOR(longlong, long long)
TL_EMULATOR_VECTOR(ulonglong, unsigned long long)
TL_EMULATOR_VECTOR(float, float)

#undef TL_EMULATOR_VECTOR

constexpr uint3 make_uint3(unsigned x, unsigned y, unsigned z) {
  return {x, y, z};
}

#endif  // KERNELS_CUDA_EMULATOR_VECTOR_TYPES_H_
