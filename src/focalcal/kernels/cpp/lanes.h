// Sixteen floats or eight doubles at a time: arithmetic, exp and log on them.
//
// The same 64 bytes are one register of AVX-512, two of AVX2 or four of SSE and NEON, so sums are taken in the same
// order on every machine. This header is compiled once per instruction set, inside that set's namespace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#if defined(__AVX512F__)
#define FOCALCAL_REGISTER 64
#elif defined(__AVX2__)
#define FOCALCAL_REGISTER 32
#else
#define FOCALCAL_REGISTER 16
#endif
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define FOCALCAL_INLINE inline __attribute__((always_inline))
#define FOCALCAL_PARTS _Pragma("GCC unroll 4") for (int i = 0; i < parts; ++i)

namespace focalcal {
namespace FOCALCAL_ISA {

constexpr int parts = 64 / FOCALCAL_REGISTER;

template <class T> struct Integer;
template <> struct Integer<float> { using type = std::int32_t; };
template <> struct Integer<double> { using type = std::int64_t; };
template <> struct Integer<std::int32_t> { using type = std::int32_t; };
template <> struct Integer<std::int64_t> { using type = std::int64_t; };

// 64 bytes of numbers. They are copied register by register: compilers copy a larger struct through the stack, in pieces
// of another size, and wait for each. A comparison gives a mask: all bits of a lane set, or none.
template <class T> struct Lanes {
  static constexpr int size = 64 / sizeof(T);
  typedef T Register __attribute__((vector_size(FOCALCAL_REGISTER)));
  using Mask = Lanes<typename Integer<T>::type>;
  Register v[parts];

  static FOCALCAL_INLINE Lanes all(T value) {
    Lanes out;
    FOCALCAL_PARTS out.v[i] = value - Register{};
    return out;
  }
  static FOCALCAL_INLINE Lanes load(const T *from) {
    // Register by register: copied as a whole, several registers would take a detour through memory.
    Lanes out;
    FOCALCAL_PARTS std::memcpy(&out.v[i], from + size / parts * i, sizeof out.v[i]);
    return out;
  }
  FOCALCAL_INLINE void store(T *to) const {
    FOCALCAL_PARTS std::memcpy(to + size / parts * i, &v[i], sizeof v[i]);
  }
  FOCALCAL_INLINE T operator[](int lane) const {
    T held[size];
    store(held);
    return held[lane];
  }
};

#define FOCALCAL_BINARY(sign)                                                                                         \
  template <class T> FOCALCAL_INLINE Lanes<T> operator sign(Lanes<T> a, Lanes<T> b) {                                \
    FOCALCAL_PARTS a.v[i] = a.v[i] sign b.v[i];                                                                       \
    return a;                                                                                                         \
  }                                                                                                                   \
  template <class T> FOCALCAL_INLINE Lanes<T> operator sign(Lanes<T> a, T b) { return a sign Lanes<T>::all(b); }
FOCALCAL_BINARY(+)
FOCALCAL_BINARY(-)
FOCALCAL_BINARY(*)
FOCALCAL_BINARY(/)
FOCALCAL_BINARY(&)
FOCALCAL_BINARY(|)
#undef FOCALCAL_BINARY

template <class T> FOCALCAL_INLINE Lanes<T> operator~(Lanes<T> a) {
  FOCALCAL_PARTS a.v[i] = ~a.v[i];
  return a;
}
template <class T> FOCALCAL_INLINE Lanes<T> &operator+=(Lanes<T> &a, Lanes<T> b) { return a = a + b; }

#define FOCALCAL_COMPARISON(sign)                                                                                     \
  template <class T> FOCALCAL_INLINE typename Lanes<T>::Mask operator sign(Lanes<T> a, Lanes<T> b) {                 \
    typename Lanes<T>::Mask out;                                                                                      \
    FOCALCAL_PARTS out.v[i] = a.v[i] sign b.v[i];                                                                     \
    return out;                                                                                                       \
  }                                                                                                                   \
  template <class T> FOCALCAL_INLINE typename Lanes<T>::Mask operator sign(Lanes<T> a, T b) {                        \
    return a sign Lanes<T>::all(b);                                                                                   \
  }
FOCALCAL_COMPARISON(<)
FOCALCAL_COMPARISON(<=)
FOCALCAL_COMPARISON(>)
FOCALCAL_COMPARISON(==)
#undef FOCALCAL_COMPARISON

// The first where the mask is set, the second elsewhere.
template <class M, class T> FOCALCAL_INLINE Lanes<T> select(Lanes<M> mask, Lanes<T> yes, Lanes<T> no) {
  Lanes<T> out;
  FOCALCAL_PARTS out.v[i] = mask.v[i] ? yes.v[i] : no.v[i];
  return out;
}

// As in std::max(a, b): a where either is NaN. Compilers do not find the one instruction for it by themselves.
template <class T> FOCALCAL_INLINE Lanes<T> larger(Lanes<T> a, Lanes<T> b) { return select(a < b, b, a); }
template <class T> FOCALCAL_INLINE Lanes<T> smaller(Lanes<T> a, Lanes<T> b) { return select(b < a, b, a); }
#if defined(__AVX512F__)
#define FOCALCAL_EXTREME(name, T, instruction) \
  FOCALCAL_INLINE Lanes<T> name(Lanes<T> a, Lanes<T> b) { return {{instruction(b.v[0], a.v[0])}}; }
FOCALCAL_EXTREME(larger, float, _mm512_max_ps)
FOCALCAL_EXTREME(larger, double, _mm512_max_pd)
FOCALCAL_EXTREME(smaller, float, _mm512_min_ps)
FOCALCAL_EXTREME(smaller, double, _mm512_min_pd)
#undef FOCALCAL_EXTREME
#elif defined(__AVX2__)
#define FOCALCAL_EXTREME(name, T, instruction)                                \
  FOCALCAL_INLINE Lanes<T> name(Lanes<T> a, Lanes<T> b) {                     \
    return {{instruction(b.v[0], a.v[0]), instruction(b.v[1], a.v[1])}};      \
  }
FOCALCAL_EXTREME(larger, float, _mm256_max_ps)
FOCALCAL_EXTREME(larger, double, _mm256_max_pd)
FOCALCAL_EXTREME(smaller, float, _mm256_min_ps)
FOCALCAL_EXTREME(smaller, double, _mm256_min_pd)
#undef FOCALCAL_EXTREME
#endif

// A vector of `count` numbers.
template <class T, int count> struct Vector { typedef T type __attribute__((vector_size(count * sizeof(T)))); };

// The lower or the upper half of a vector. Through memory it would have to wait until it is written.
template <int count, bool upper, class V> FOCALCAL_INLINE auto half_of(V v) {
  if constexpr (count == 16 && upper) return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  else if constexpr (count == 16) return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
  else if constexpr (count == 8 && upper) return __builtin_shufflevector(v, v, 4, 5, 6, 7);
  else if constexpr (count == 8) return __builtin_shufflevector(v, v, 0, 1, 2, 3);
  else if constexpr (count == 4 && upper) return __builtin_shufflevector(v, v, 2, 3);
  else if constexpr (count == 4) return __builtin_shufflevector(v, v, 0, 1);
  else return v[upper];
}

// All lanes in one number: the lower half with the upper half, again and again, in the same order for every register.
template <int count, class V, class Join> FOCALCAL_INLINE auto folded(V v, const Join &join) {
  const auto half = join(half_of<count, false>(v), half_of<count, true>(v));
  if constexpr (count == 2) return half;
  else return folded<count / 2>(half, join);
}
template <class T, class Join> FOCALCAL_INLINE T folded(Lanes<T> a, const Join &join) {
  for (int width = parts / 2; width; width /= 2)
    for (int i = 0; i < width; ++i) a.v[i] = join(a.v[i], a.v[i + width]);
  return folded<FOCALCAL_REGISTER / int(sizeof(T))>(a.v[0], join);
}

template <class T> FOCALCAL_INLINE T sum_of(Lanes<T> a) {
  return folded(a, [](auto low, auto high) __attribute__((always_inline)) { return low + high; });
}
template <class T> FOCALCAL_INLINE T largest_of(Lanes<T> a) {
  return folded(a, [](auto low, auto high) __attribute__((always_inline)) { return low < high ? high : low; });
}

// A bit for each lane of a mask, the first lane lowest.
template <class I> FOCALCAL_INLINE std::uint32_t bits_of(Lanes<I> mask) {
#if defined(__AVX512F__)
  if constexpr (sizeof(I) == 4) return _mm512_movepi32_mask((__m512i)mask.v[0]);
  else return _mm512_movepi64_mask((__m512i)mask.v[0]);
#elif defined(__AVX2__)
  if constexpr (sizeof(I) == 4)
    return std::uint32_t(_mm256_movemask_ps((__m256)mask.v[0])) | std::uint32_t(_mm256_movemask_ps((__m256)mask.v[1])) << 8;
  else
    return std::uint32_t(_mm256_movemask_pd((__m256d)mask.v[0])) | std::uint32_t(_mm256_movemask_pd((__m256d)mask.v[1])) << 4;
#else
  std::uint32_t bits = 0;
  I held[Lanes<I>::size];
  mask.store(held);
  for (int lane = 0; lane < Lanes<I>::size; ++lane) bits |= std::uint32_t(held[lane] & 1) << lane;
  return bits;
#endif
}

template <class I> FOCALCAL_INLINE bool any_of(Lanes<I> mask) { return bits_of(mask) != 0; }

// The bits of one kind of lanes as another of the same width.
template <class To, class From> FOCALCAL_INLINE Lanes<To> bits_as(Lanes<From> a) {
  static_assert(sizeof(To) == sizeof(From), "lanes keep their width");
  Lanes<To> out;
  FOCALCAL_PARTS std::memcpy(&out.v[i], &a.v[i], sizeof out.v[i]);
  return out;
}

// The lower (0) or upper (1) eight of sixteen floats, widened.
template <int half> FOCALCAL_INLINE Lanes<double> widened(Lanes<float> a) {
  constexpr int floats = FOCALCAL_REGISTER / 4;
  using Wide = typename Lanes<double>::Register;
  Lanes<double> out;
  if constexpr (parts == 1) {
    out.v[0] = __builtin_convertvector(half_of<floats, half == 1>(a.v[0]), Wide);
  } else {
    for (int i = 0; i < parts; i += 2) {
      out.v[i] = __builtin_convertvector(half_of<floats, false>(a.v[(parts * half + i) / 2]), Wide);
      out.v[i + 1] = __builtin_convertvector(half_of<floats, true>(a.v[(parts * half + i) / 2]), Wide);
    }
  }
  return out;
}

// Eight doubles written in single precision, or as they are.
FOCALCAL_INLINE void narrow(Lanes<double> a, double *to) { a.store(to); }
FOCALCAL_INLINE void narrow(Lanes<double> a, float *to) {
  constexpr int width = FOCALCAL_REGISTER / 8;
  typedef float Narrow __attribute__((vector_size(width * 4)));
  FOCALCAL_PARTS {
    const Narrow part = __builtin_convertvector(a.v[i], Narrow);
    std::memcpy(to + width * i, &part, sizeof part);
  }
}

// Sums in double precision of lanes of either kind.
FOCALCAL_INLINE void add_to(Lanes<double> (&sums)[2], Lanes<float> a) {
  sums[0] += widened<0>(a);
  sums[1] += widened<1>(a);
}
FOCALCAL_INLINE void add_to(Lanes<double> (&sums)[2], Lanes<double> a) { sums[0] += a; }
FOCALCAL_INLINE double total_of(const Lanes<double> (&sums)[2]) { return sum_of(sums[0] + sums[1]); }

// What differs between float and double in exp and log.
template <class T> struct Format;
template <> struct Format<float> {
  static constexpr int mantissa = 23, bias = 127, exp_terms = 7, log_terms = 4;
  static constexpr float log2_high = 0.693359375f, log2_low = -2.12194440e-4f, lowest = -87.3365f;
  static constexpr float rounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
};
template <> struct Format<double> {
  static constexpr int mantissa = 52, bias = 1023, exp_terms = 13, log_terms = 11;
  static constexpr double log2_high = 0.693145751953125, log2_low = 1.42860682030941723212e-6, lowest = -708.39;
  static constexpr double rounder = 6755399441055744.0;  // 1.5 * 2^52
};

// exp(x) for x <= 88 (709 in double); 0 from where it would be subnormal on, so that exp(-inf) is exactly 0.
// With n = round(x / log 2) and r = x - n log 2, exp(x) = 2^n exp(r); |r| <= 0.35, where the Taylor series up to
// r^7/7! is right to 6e-9 and up to r^13/13! to 5e-18.
template <class T> FOCALCAL_INLINE Lanes<T> exp(Lanes<T> x) {
  using F = Format<T>;
  using I = typename Integer<T>::type;
  const auto vanishes = x < T(F::lowest);
#if !defined(__AVX512F__)
  x = larger(x, Lanes<T>::all(F::lowest));
#endif
  const Lanes<T> shifted = x * T(1.44269504088896340736) + F::rounder;
  const Lanes<T> n = shifted - F::rounder;
  const Lanes<T> r = x - n * F::log2_high - n * F::log2_low;
  T factorial = 1;
  for (int k = 2; k <= F::exp_terms; ++k) factorial *= k;
  Lanes<T> sum = Lanes<T>::all(1 / factorial);
#pragma GCC unroll 13
  for (int k = F::exp_terms; k > 0; --k) {
    factorial /= k;
    sum = sum * r + 1 / factorial;
  }
#if defined(__AVX512F__)  // one instruction scales by 2^n, and leaves 0 where the result vanishes
  const auto kept = ~bits_of(vanishes);
  if constexpr (sizeof(T) == 4) return {{_mm512_maskz_scalef_ps(__mmask16(kept), sum.v[0], n.v[0])}};
  else return {{_mm512_maskz_scalef_pd(__mmask8(kept), sum.v[0], n.v[0])}};
#else
  Lanes<I> scaled = bits_as<I>(sum), power = bits_as<I>(shifted);
  FOCALCAL_PARTS scaled.v[i] += power.v[i] << F::mantissa;
  return select(vanishes, Lanes<T>{}, bits_as<T>(scaled));
#endif
}

// log(x) for normal x > 0. With x = 2^e m, m in [0.7, 1.4], and f = (m - 1) / (m + 1):
// log x = e log 2 + 2 (f + f^3/3 + f^5/5 + ...), where f^2 <= 0.0295.
template <class T> FOCALCAL_INLINE Lanes<T> log(Lanes<T> x) {
  using F = Format<T>;
  using I = typename Integer<T>::type;
  constexpr T root_half = T(0.70710678118654752440);
  I offset;
  std::memcpy(&offset, &root_half, sizeof offset);
  Lanes<I> bits = bits_as<I>(x), mantissa, exponent;
  FOCALCAL_PARTS {
    const auto above = bits.v[i] - offset;
    exponent.v[i] = above >> F::mantissa;
    mantissa.v[i] = (above & ((I(1) << F::mantissa) - 1)) + offset;
  }
  const Lanes<T> m = bits_as<T>(mantissa);
  const Lanes<T> f = (m - T(1)) / (m + T(1)), square = f * f;
  Lanes<T> sum = Lanes<T>::all(T(2) / (2 * F::log_terms + 1));
#pragma GCC unroll 11
  for (int k = F::log_terms - 1; k >= 0; --k) sum = sum * square + T(2) / (2 * k + 1);
  Lanes<T> e;
  FOCALCAL_PARTS e.v[i] = __builtin_convertvector(exponent.v[i], typename Lanes<T>::Register);
  return e * F::log2_high + (sum * f + e * F::log2_low);
}

// log(1 + x) for x >= 0, to the last digits also where 1 + x rounds to 1.
template <class T> FOCALCAL_INLINE Lanes<T> log1p(Lanes<T> x) {
  const Lanes<T> u = x + T(1);
  return log(u) + (x - (u - T(1))) / u;
}

// Numbers as they are stored, and the type they are computed in.
struct Half { std::uint16_t bits; };
struct Brain { std::uint16_t bits; };
template <class S> struct Computed { using type = S; };
template <> struct Computed<Half> { using type = float; };
template <> struct Computed<Brain> { using type = float; };

FOCALCAL_INLINE float widen(float value) { return value; }
FOCALCAL_INLINE double widen(double value) { return value; }
FOCALCAL_INLINE float widen(Brain value) {
  const std::uint32_t bits = std::uint32_t(value.bits) << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}
FOCALCAL_INLINE float widen(Half value) {
  // Shifted into place the exponent is 112 too small, subnormal numbers included; infinity and NaN have all its bits.
  const std::uint32_t bits = std::uint32_t(value.bits & 0x7fff) << 13, sign = std::uint32_t(value.bits & 0x8000) << 16;
  float magnitude;
  std::memcpy(&magnitude, &bits, sizeof magnitude);
  magnitude *= 5.192296858534828e33f;  // 2^112
  std::uint32_t out;
  std::memcpy(&out, &magnitude, sizeof out);
  if (bits >= 0x0f800000u) out = bits | 0x7f800000u;
  out |= sign;
  std::memcpy(&magnitude, &out, sizeof magnitude);
  return magnitude;
}

FOCALCAL_INLINE Lanes<float> load(const float *from) { return Lanes<float>::load(from); }
FOCALCAL_INLINE Lanes<double> load(const double *from) { return Lanes<double>::load(from); }
template <class S> FOCALCAL_INLINE Lanes<float> load(const S *from) {
  float held[16];
#if defined(__F16C__)
  if constexpr (sizeof(S) == 2 && !std::is_same<S, Brain>::value) {
    for (int i = 0; i < 2; ++i) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i *>(from) + i);
      _mm256_storeu_ps(held + 8 * i, _mm256_cvtph_ps(half));
    }
    return Lanes<float>::load(held);
  }
#endif
  for (int lane = 0; lane < 16; ++lane) held[lane] = widen(from[lane]);
  return Lanes<float>::load(held);
}

// The numbers of the lanes: 0, 1, 2, ...
template <class I> FOCALCAL_INLINE Lanes<I> lane_numbers() {
  I held[Lanes<I>::size];
  for (int lane = 0; lane < Lanes<I>::size; ++lane) held[lane] = I(lane);
  return Lanes<I>::load(held);
}

// The first `count` numbers, fewer than there are lanes, and a filler in the other lanes; memory beyond is not read.
template <class S>
FOCALCAL_INLINE Lanes<typename Computed<S>::type> load_first(const S *from, std::ptrdiff_t count, typename Computed<S>::type filler) {
  using T = typename Computed<S>::type;
#if defined(__AVX512F__)
  if constexpr (std::is_same<S, float>::value)
    return {(typename Lanes<T>::Register)_mm512_mask_loadu_ps(_mm512_set1_ps(filler), __mmask16((1u << count) - 1), from)};
  if constexpr (std::is_same<S, double>::value)
    return {(typename Lanes<T>::Register)_mm512_mask_loadu_pd(_mm512_set1_pd(filler), __mmask8((1u << count) - 1), from)};
#elif defined(__AVX2__)
  if constexpr (std::is_same<S, T>::value) {
    using I = typename Integer<T>::type;
    const Lanes<I> wanted = lane_numbers<I>() < I(count);
    Lanes<T> out;
    FOCALCAL_PARTS {
      const T *part = from + Lanes<T>::size / parts * i;
      if constexpr (sizeof(T) == 4) out.v[i] = (typename Lanes<T>::Register)_mm256_maskload_ps(part, (__m256i)wanted.v[i]);
      else out.v[i] = (typename Lanes<T>::Register)_mm256_maskload_pd(part, (__m256i)wanted.v[i]);
    }
    return select(wanted, out, Lanes<T>::all(filler));
  }
#endif
  T held[Lanes<T>::size];
  for (int lane = 0; lane < Lanes<T>::size; ++lane) held[lane] = filler;
  for (std::ptrdiff_t lane = 0; lane < count; ++lane) held[lane] = T(widen(from[lane]));
  return Lanes<T>::load(held);
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
