// The predicted class of each row and its probability.
#pragma once

#include "class_odds.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// The first class of the largest logit; 0 if every one is NaN.
template <class S> std::ptrdiff_t largest_class(const S *x, std::ptrdiff_t classes) {
  using T = typename Computed<S>::type;
  constexpr std::ptrdiff_t size = Lanes<T>::size;
  Lanes<T> high = Lanes<T>::all(-std::numeric_limits<T>::infinity());
  std::ptrdiff_t k = 0;
  for (; k + size <= classes; k += size) high = larger(high, load(x + k));
  if (k < classes) high = larger(high, load_some(x + k, classes - k, -1));
  const T highest = largest_of(high);
  for (k = 0; k + size <= classes && !any_of(load(x + k) == highest); k += size) {}
  for (; k < classes; ++k)
    if (widen(x[k]) == highest) return k;
  return 0;
}

template <class S>
void top_of(const Scores &scores, std::ptrdiff_t begin, std::ptrdiff_t end, std::int64_t *predicted, double *confidence) {
  for (std::ptrdiff_t first = begin; first < end; first += 8) {
    double logit[8] = {}, best[8] = {}, rest[8] = {}, p[8];
    const std::ptrdiff_t count = first + 8 < end ? 8 : end - first;
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const S *x = static_cast<const S *>(scores.data) + (first + i) * scores.stride;
      predicted[first + i] = largest_class(x, scores.classes);
      typename Computed<S>::type *none = nullptr;
      const ClassOdds odds = read_row<false>(x, scores.classes, predicted[first + i], none, none);
      logit[i] = odds.logit;
      best[i] = odds.best;
      rest[i] = odds.rest;
    }
    terms_of(Lanes<double>::load(logit), Lanes<double>::load(best), Lanes<double>::load(rest)).p.store(p);
    // A row without any class has no confidence, and one with an infinite logit neither.
    for (std::ptrdiff_t i = 0; i < count; ++i) {
      const bool usable = logit[i] > mask_limit<S> && logit[i] < std::numeric_limits<double>::infinity();
      confidence[first + i] = usable ? p[i] : std::numeric_limits<double>::quiet_NaN();
    }
  }
}

inline void top_confidence(const Scores &scores, std::ptrdiff_t begin, std::ptrdiff_t end, std::int64_t *predicted,
                           double *confidence) {
  switch (scores.type) {
    case Type::float32: return top_of<float>(scores, begin, end, predicted, confidence);
    case Type::float64: return top_of<double>(scores, begin, end, predicted, confidence);
    case Type::float16: return top_of<Half>(scores, begin, end, predicted, confidence);
    case Type::bfloat16: return top_of<Brain>(scores, begin, end, predicted, confidence);
  }
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
