// A few numbers about scores for the checks of input: their extremes, and how far rows of probabilities are from 1.
#pragma once

#include <cmath>

#include "dispatch.h"
#include "lanes.h"

namespace focalcal {
namespace FOCALCAL_ISA {

template <class S> void extremes_of(const Scores &scores, std::ptrdiff_t begin, std::ptrdiff_t end, Extremes &out) {
  using T = typename Computed<S>::type;
  constexpr T infinity = std::numeric_limits<T>::infinity();
  Lanes<T> low = Lanes<T>::all(infinity), high = Lanes<T>::all(-infinity);
  typename Lanes<T>::Mask odd{};
  T last_low = infinity, last_high = -infinity;
  const S *data = static_cast<const S *>(scores.data);
  // Rows without a gap between them are one long row.
  const bool joined = scores.stride == scores.classes;
  const std::ptrdiff_t rows = joined ? 1 : end - begin, length = joined ? (end - begin) * scores.classes : scores.classes;
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    const S *x = data + (begin + row) * scores.stride;
    std::ptrdiff_t k = 0;
    for (; k + Lanes<T>::size <= length; k += Lanes<T>::size) {
      const Lanes<T> value = load(x + k);
      low = smaller(low, value);
      high = larger(high, value);
      odd = odd | ~(value == value);
    }
    for (; k < length; ++k) {
      const T value = widen(x[k]);
      last_low = value < last_low ? value : last_low;
      last_high = value > last_high ? value : last_high;
      if (value != value) out.has_nan = true;
    }
  }
  const double lowest = -largest_of(Lanes<T>{} - low), highest = largest_of(high);
  out.lowest = lowest < last_low ? lowest : last_low;
  out.highest = highest > last_high ? highest : last_high;
  out.has_nan = out.has_nan || any_of(odd);
}

inline void extremes(const Scores &scores, std::ptrdiff_t begin, std::ptrdiff_t end, Extremes &out) {
  switch (scores.type) {
    case Type::float32: return extremes_of<float>(scores, begin, end, out);
    case Type::float64: return extremes_of<double>(scores, begin, end, out);
    case Type::float16: return extremes_of<Half>(scores, begin, end, out);
    case Type::bfloat16: return extremes_of<Brain>(scores, begin, end, out);
  }
}

template <class S>
double sum_error_of(const Scores &scores, bool logarithms, std::ptrdiff_t begin, std::ptrdiff_t end) {
  using T = typename Computed<S>::type;
  constexpr int size = Lanes<T>::size;
  double largest = 0;
  for (std::ptrdiff_t row = begin; row < end; ++row) {
    const S *x = static_cast<const S *>(scores.data) + row * scores.stride;
    Lanes<double> sums[2] = {};
    for (std::ptrdiff_t k = 0; k < scores.classes; k += size) {
      Lanes<T> value;
      if (k + size <= scores.classes) value = load(x + k);
      else {
        T last[size];
        const T none = logarithms ? -std::numeric_limits<T>::infinity() : T(0);
        for (int i = 0; i < size; ++i) last[i] = k + i < scores.classes ? widen(x[k + i]) : none;
        value = Lanes<T>::load(last);
      }
      add_to(sums, logarithms ? exp(value) : value);
    }
    const double error = std::abs(total_of(sums) - 1);
    if (largest == largest && !(error <= largest)) largest = error;  // NaN stays
  }
  return largest;
}

inline double sum_error(const Scores &scores, bool logarithms, std::ptrdiff_t begin, std::ptrdiff_t end) {
  switch (scores.type) {
    case Type::float32: return sum_error_of<float>(scores, logarithms, begin, end);
    case Type::float64: return sum_error_of<double>(scores, logarithms, begin, end);
    case Type::float16: return sum_error_of<Half>(scores, logarithms, begin, end);
    default: return sum_error_of<Brain>(scores, logarithms, begin, end);
  }
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
