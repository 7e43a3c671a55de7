// Rows of confidence and correctness added up in bins with fixed edges.
#pragma once

#include "dispatch.h"
#include "lanes.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// The number of inner edges below each value; up to this many are compared one by one, which never guesses a branch
// wrong.
constexpr int few_edges = 64;

template <class T> FOCALCAL_INLINE void places_of(const T *values, const T *edges, int num_edges,
                                                  typename Integer<T>::type *places) {
  using I = typename Integer<T>::type;
  constexpr int size = Lanes<T>::size;
  if (num_edges <= few_edges) {
    const auto value = Lanes<T>::load(values);
    Lanes<I> passed{};
    for (int edge = 0; edge < num_edges; ++edge) passed = passed - (value > edges[edge]);
    passed.store(places);
    return;
  }
  for (int i = 0; i < size; ++i) {
    I low = 0, high = num_edges;
    while (low < high) {
      const I middle = (low + high) / 2;
      if (values[i] > edges[middle]) low = middle + 1;
      else high = middle;
    }
    places[i] = low;
  }
}

template <class T> void bins_of(const BinsInput &in, std::ptrdiff_t begin, std::ptrdiff_t end, double *sums) {
  using I = typename Integer<T>::type;
  constexpr int size = Lanes<T>::size;
  const T *confidence = static_cast<const T *>(in.confidence), *edges = static_cast<const T *>(in.edges);
  for (std::ptrdiff_t row = begin; row < end; row += size) {
    T values[size];
    const int count = static_cast<int>(end - row < size ? end - row : size);
    for (int i = 0; i < size; ++i) values[i] = confidence[row + (i < count ? i : count - 1)];
    I places[size];
    places_of(values, edges, in.num_bins - 1, places);
    for (int i = 0; i < count; ++i) {
      const double weight = in.weight ? in.weight[row + i] : 1.0;
      double *sum = sums + 3 * (2 * places[i] + (in.correct[row + i] != 0));
      sum[0] += 1;
      sum[1] += weight;
      sum[2] += weight * double(values[i]);
    }
  }
}

inline void bins(const BinsInput &in, std::ptrdiff_t begin, std::ptrdiff_t end, double *sums) {
  in.type == Type::float64 ? bins_of<double>(in, begin, end, sums) : bins_of<float>(in, begin, end, sums);
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
