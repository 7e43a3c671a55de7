// Sixteen rows of floats, or eight of doubles, so that a lane holds a row.
#pragma once

#include "lanes.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// Four numbers side by side, for transposing.
template <class T> struct Quad { typedef T type __attribute__((vector_size(4 * sizeof(T)))); };

template <class S> FOCALCAL_INLINE typename Quad<typename Computed<S>::type>::type load_quad(const S *from) {
  typename Quad<typename Computed<S>::type>::type out;
  if constexpr (std::is_same<S, typename Computed<S>::type>::value) {
    std::memcpy(&out, from, sizeof out);
  } else {
    for (int i = 0; i < 4; ++i) out[i] = widen(from[i]);
  }
  return out;
}

// Rows (size, K) as (K, size), widened; four classes of four rows at a time.
template <class S, class T> FOCALCAL_INLINE void transpose_rows(const S *const *rows, std::ptrdiff_t classes, T *to) {
  constexpr int size = Lanes<T>::size;
  using Four = typename Quad<T>::type;
  std::ptrdiff_t k = 0;
  for (; k + 4 <= classes; k += 4)
    for (int lane = 0; lane < size; lane += 4) {
      const Four a = load_quad(rows[lane] + k), b = load_quad(rows[lane + 1] + k);
      const Four c = load_quad(rows[lane + 2] + k), d = load_quad(rows[lane + 3] + k);
      const Four ab = __builtin_shufflevector(a, b, 0, 4, 1, 5), cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
      const Four ef = __builtin_shufflevector(a, b, 2, 6, 3, 7), gh = __builtin_shufflevector(c, d, 2, 6, 3, 7);
      const Four columns[4] = {
          __builtin_shufflevector(ab, cd, 0, 1, 4, 5), __builtin_shufflevector(ab, cd, 2, 3, 6, 7),
          __builtin_shufflevector(ef, gh, 0, 1, 4, 5), __builtin_shufflevector(ef, gh, 2, 3, 6, 7)};
      for (int i = 0; i < 4; ++i) std::memcpy(to + (k + i) * size + lane, &columns[i], sizeof columns[i]);
    }
  for (; k < classes; ++k)
    for (int lane = 0; lane < size; ++lane) to[k * size + lane] = widen(rows[lane][k]);
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
