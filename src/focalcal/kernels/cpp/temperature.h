// Sums over rows at one or several inverse temperatures: the NLL and its derivatives, as temperature.py defines them.
//
// A row's logits are taken from its largest one and times the inverse temperature, s <= 0, so that neither exp(s) nor
// exp(s) s^j can overflow. Rows are worked on in groups of as many as a register has lanes: with few classes the group
// is transposed and every row has a lane; with many, lanes go along the classes of one row after the other.
#pragma once

#include <algorithm>
#include <vector>

#include "dispatch.h"
#include "transpose.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// Up to so many classes a group of rows is transposed: 16 KB in float32, half of the fastest cache.
constexpr std::ptrdiff_t transposed_classes = 256;
// Vectors of classes that are added up in the logits' precision before they go on in double.
constexpr std::ptrdiff_t vectors_in_short_sums = 32;

// What is collected at one inverse temperature.
template <class T> struct AtPoint {
  static constexpr int size = Lanes<T>::size;
  TemperedPoint point;
  alignas(64) double powers[highest_order + 1][size];  // of a group: the sums of exp(s) s^j over the classes of each row
  Lanes<double> sums[highest_order + 1];               // of all rows: the NLL, and cumulants of s
};

// The logits of a group (size, K) as (K, size), masked ones as -inf; gives the largest of each row.
template <class S, class T> Lanes<T> transpose_group(const S *const *rows, std::ptrdiff_t classes, T limit, T *to) {
  constexpr int size = Lanes<T>::size;
  transpose_rows(rows, classes, to);
  const Lanes<T> masked = Lanes<T>::all(-std::numeric_limits<T>::infinity());
  Lanes<T> top = masked;
  for (std::ptrdiff_t k = 0; k < classes; ++k) {
    Lanes<T> x = Lanes<T>::load(to + k * size);
    x = select(x <= limit, masked, x);
    x.store(to + k * size);
    top = larger(top, x);
  }
  return top;
}

// The logits of one row, masked ones as -inf and padded with such to whole vectors; gives the largest.
template <class S, class T> T copy_row(const S *row, std::ptrdiff_t classes, T limit, T *to) {
  constexpr int size = Lanes<T>::size;
  const Lanes<T> masked = Lanes<T>::all(-std::numeric_limits<T>::infinity());
  Lanes<T> top = masked;
  const auto keep = [&](Lanes<T> x, std::ptrdiff_t k) {
    x = select(x <= limit, masked, x);
    x.store(to + k);
    top = larger(top, x);
  };
  std::ptrdiff_t k = 0;
  for (; k + size <= classes; k += size) keep(load(row + k), k);
  if (k < classes) keep(load_first(row + k, classes - k, -std::numeric_limits<T>::infinity()), k);
  return largest_of(top);
}

// Add exp(s) s^j to the j-th sum, for j up to the order.
template <int order, class T>
FOCALCAL_INLINE void add_powers(Lanes<T> distance, T inverse, Lanes<T> (&sums)[order + 1]) {
  // exp is 0 from a bound on; s stops soon after it, because 0 times infinity is no number.
  const Lanes<T> s = larger(distance * inverse, Lanes<T>::all(2 * Format<T>::lowest));
  Lanes<T> term = exp(s);
  sums[0] += term;
#pragma GCC unroll 8
  for (int j = 1; j <= order; ++j) {
    term = term * s;
    sums[j] += term;
  }
}

FOCALCAL_INLINE void store_wide(Lanes<double> a, double *to) { a.store(to); }
FOCALCAL_INLINE void store_wide(Lanes<float> a, double *to) {
  widened<0>(a).store(to);
  widened<1>(a).store(to + 8);
}

// The sums of exp(s) s^j over the classes of each row of a transposed group.
template <int order, class T>
void add_group(const T *logits, std::ptrdiff_t classes, Lanes<T> top, AtPoint<T> &at) {
  Lanes<T> sums[order + 1]{};
  const T inverse = T(at.point.inverse_temperature);
  for (std::ptrdiff_t k = 0; k < classes; ++k)
    add_powers<order>(Lanes<T>::load(logits + k * Lanes<T>::size) - top, inverse, sums);
#pragma GCC unroll 9
  for (int j = 0; j <= order; ++j) store_wide(sums[j], at.powers[j]);
}

// The same of one row with lanes along its classes, of which there is a whole number of vectors.
template <int order, class T>
void add_row(const T *logits, std::ptrdiff_t classes, T largest, int row, AtPoint<T> &at) {
  constexpr std::ptrdiff_t size = Lanes<T>::size, step = vectors_in_short_sums * size;
  const Lanes<T> top = Lanes<T>::all(largest);
  const T inverse = T(at.point.inverse_temperature);
  Lanes<double> wide[order + 1][2]{};
  for (std::ptrdiff_t start = 0; start < classes; start += step) {
    Lanes<T> sums[order + 1]{};
    for (std::ptrdiff_t k = start; k < std::min(start + step, classes); k += size)
      add_powers<order>(Lanes<T>::load(logits + k) - top, inverse, sums);
#pragma GCC unroll 9
    for (int j = 0; j <= order; ++j) add_to(wide[j], sums[j]);
  }
  for (int j = 0; j <= order; ++j) at.powers[j][row] = total_of(wide[j]);
}

constexpr double binomial(int n, int k) { return k == 0 ? 1 : binomial(n, k - 1) * (n - k + 1) / k; }

// Add the rows of a group, of which the powers are known, to the sums: the NLL and the cumulants of s, from which the
// label's distance is taken where it belongs. Write down the rows, from `first` on, if they are asked for.
template <int order, class T>
void finish_group(const double *label, const double *weight, AtPoint<T> &at, std::ptrdiff_t first, std::ptrdiff_t rows) {
  for (int lane = 0; lane < at.size; lane += Lanes<double>::size) {
    const Lanes<double> total = Lanes<double>::load(at.powers[0] + lane);
    Lanes<double> moment[order + 1], column[order + 1];
    column[0] = log(total) + (total - total);  // log alone would take NaN for a number
#pragma GCC unroll 8
    for (int n = 1; n <= order; ++n) {
      moment[n] = Lanes<double>::load(at.powers[n] + lane) / total;
      column[n] = moment[n];
#pragma GCC unroll 8
      for (int j = 1; j < n; ++j) column[n] = column[n] - column[j] * binomial(n - 1, j - 1) * moment[n - j];
    }
    const Lanes<double> behind = Lanes<double>::load(label + lane) * at.point.inverse_temperature;
    column[0] = column[0] - behind;
    if constexpr (order > 0) column[1] = column[1] - behind;
    for (int j = 0; j <= order; ++j) at.sums[j] += column[j] * Lanes<double>::load(weight + lane);
    if (!at.point.columns) continue;
    const std::ptrdiff_t begin = first + lane, count = std::min<std::ptrdiff_t>(rows - begin, Lanes<double>::size);
    for (int j = 0; j <= std::min(order, at.point.order); ++j)
      for (std::ptrdiff_t i = 0; i < count; ++i) at.point.columns[j * rows + begin + i] = column[j][int(i)];
  }
}

// Call with the least of the compiled orders that is enough.
template <class Call> FOCALCAL_INLINE void with_order(int order, const Call &call) {
  if (order <= 1)
    call(std::integral_constant<int, 1>{});
  else if (order <= 3)
    call(std::integral_constant<int, 3>{});
  else
    call(std::integral_constant<int, highest_order>{});
}

// The rows of a group: where they are, how far their labels are behind, and what they weigh. Lanes without a row have
// the weight 0 and zeros for logits.
template <class S> struct RowGroup {
  static constexpr int size = Lanes<typename Computed<S>::type>::size;
  const S *row[size];
  alignas(64) double label[size], weight[size];

  RowGroup(const LabelledRows &given, std::ptrdiff_t first, std::ptrdiff_t end, const S *nothing) {
    for (int lane = 0; lane < size; ++lane) {
      const bool there = first + lane < end;
      row[lane] = there ? static_cast<const S *>(given.scores.data) + (first + lane) * given.scores.stride : nothing;
      weight[lane] = !there ? 0 : given.weight ? given.weight[first + lane] : 1;
      label[lane] = there ? widen(row[lane][given.labels[first + lane]]) : 0;
      if (label[lane] <= given.limit) label[lane] = -std::numeric_limits<double>::infinity();
    }
  }
};

template <class S>
void tempered_sums_of(const LabelledRows &given, std::ptrdiff_t begin, std::ptrdiff_t end, TemperedPart &out) {
  using T = typename Computed<S>::type;
  constexpr int size = Lanes<T>::size;
  const std::ptrdiff_t classes = given.scores.classes, padded = (classes + size - 1) / size * size;
  const bool few = classes <= transposed_classes;
  static thread_local std::vector<T> scratch;  // kept, because a fresh one of many classes costs page faults
  scratch.resize(std::max<std::size_t>(scratch.size(), few ? classes * size : padded));
  const std::vector<S> nothing(few ? classes : 1, S{});
  std::vector<AtPoint<T>> points(out.points.size(), AtPoint<T>{});
  for (std::size_t i = 0; i < points.size(); ++i) points[i].point = out.points[i];
  for (std::ptrdiff_t first = begin; first < end; first += size) {
    RowGroup<S> group(given, first, end, nothing.data());
    alignas(64) T top[size]{};
    if (few) {
      const Lanes<T> tops = transpose_group(group.row, classes, T(given.limit), scratch.data());
      tops.store(top);
      for (AtPoint<T> &at : points)
        with_order(at.point.order, [&](auto order) { add_group<order>(scratch.data(), classes, tops, at); });
    } else {
      for (int row = 0; row < size; ++row) {
        const bool there = first + row < end;
        if (there) top[row] = copy_row(group.row[row], classes, T(given.limit), scratch.data());
        for (AtPoint<T> &at : points)
          with_order(at.point.order, [&](auto order) {
            if (there) return add_row<order>(scratch.data(), padded, top[row], row, at);
            for (int j = 0; j <= order; ++j) at.powers[j][row] = 1;
          });
      }
    }
    for (int lane = 0; lane < size; ++lane) {
      group.label[lane] -= top[lane];
      out.mass += group.weight[lane];
      out.all_right = out.all_right && group.label[lane] == 0;
    }
    for (AtPoint<T> &at : points)
      with_order(at.point.order, [&](auto order) { 
        finish_group<order>(group.label, group.weight, at, first, given.scores.rows);
      });
  }
  for (const AtPoint<T> &at : points)
    for (int j = 0; j <= at.point.order; ++j) out.sums.push_back(sum_of(at.sums[j]));
}

inline void tempered_sums(const LabelledRows &given, std::ptrdiff_t begin, std::ptrdiff_t end, TemperedPart &out) {
  switch (given.scores.type) {
    case Type::float32: return tempered_sums_of<float>(given, begin, end, out);
    case Type::float64: return tempered_sums_of<double>(given, begin, end, out);
    case Type::float16: return tempered_sums_of<Half>(given, begin, end, out);
    case Type::bfloat16: return tempered_sums_of<Brain>(given, begin, end, out);
  }
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
