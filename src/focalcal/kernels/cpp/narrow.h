// Storing lanes of floats as half precision numbers, rounded to the nearest, ties to even.
#pragma once

#include <cstddef>
#include <new>

#include "lanes.h"

namespace focalcal {
namespace FOCALCAL_ISA {

FOCALCAL_INLINE void narrow(float value, float &to) { to = value; }
FOCALCAL_INLINE void narrow(double value, double &to) { to = value; }
FOCALCAL_INLINE void narrow(float value, Brain &to) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  to.bits = static_cast<std::uint16_t>(value != value ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}
FOCALCAL_INLINE void narrow(float value, Half &to) {
  std::uint32_t bits, sign;
  std::memcpy(&bits, &value, sizeof bits);
  sign = (bits >> 16) & 0x8000;
  bits &= 0x7fffffff;
  if (bits >= 0x47800000) {  // from 65536 on: infinity or NaN
    bits = bits > 0x7f800000 ? 0x7e00 : 0x7c00;
  } else if (bits < 0x38800000) {  // subnormal below 2^-14: adding 0.5 leaves a multiple of 2^-24 in the mantissa
    float magnitude;
    std::memcpy(&magnitude, &bits, sizeof magnitude);
    magnitude += 0.5f;
    std::memcpy(&bits, &magnitude, sizeof bits);
    bits -= 0x3f000000;
  } else {  // the exponent is 112 too large
    bits = (bits + 0xc8000fff + ((bits >> 13) & 1)) >> 13;
  }
  to.bits = static_cast<std::uint16_t>(bits | sign);
}

FOCALCAL_INLINE void store(Lanes<float> value, float *to) { value.store(to); }
FOCALCAL_INLINE void store(Lanes<double> value, double *to) { value.store(to); }
template <class S> FOCALCAL_INLINE void store(Lanes<float> value, S *to) {
  float held[16];
  value.store(held);
#if defined(__F16C__)
  if constexpr (std::is_same<S, Half>::value) {
    for (int i = 0; i < 2; ++i)
      _mm_storeu_si128(reinterpret_cast<__m128i *>(to) + i, _mm256_cvtps_ph(_mm256_loadu_ps(held + 8 * i), 0));
    return;
  }
#endif
  for (int lane = 0; lane < 16; ++lane) narrow(held[lane], to[lane]);
}

// A buffer of at least this many numbers for the calling thread, the same at every call.
template <class T> T *scratch(std::size_t size) {
  struct Buffer {
    T *data = nullptr;
    std::size_t size = 0;
    ~Buffer() { ::operator delete(data, std::align_val_t(64)); }
  };
  static thread_local Buffer held;
  if (held.size < size) {
    ::operator delete(held.data, std::align_val_t(64));
    held.size = 0;
    held.data = static_cast<T *>(::operator new(size * sizeof(T), std::align_val_t(64)));
    held.size = size;
  }
  return held.data;
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
