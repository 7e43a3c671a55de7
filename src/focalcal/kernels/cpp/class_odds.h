// The odds of one class of each row against all others, from which neither p nor 1 - p cancels.
#pragma once

#include <cmath>

#include "dispatch.h"
#include "lanes.h"
#include "narrow.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// Logits at or below this are masked; the same as in core/masking.py.
template <class S> constexpr float mask_limit = -6.6461399789245794e35f;  // -2^119
template <> constexpr float mask_limit<Half> = -32752.0f;

// Numbers as logits: in half precision masks lie so close to other logits that they are made infinite here.
template <class S, class T> FOCALCAL_INLINE Lanes<T> unmasked(Lanes<T> x) {
  if constexpr (!std::is_same<S, Half>::value) return x;
  return select(x <= T(mask_limit<S>), Lanes<T>::all(-std::numeric_limits<T>::infinity()), x);
}

// What a row tells of a class: its logit, the largest logit of the others, and the sum of exp(x - best) over them,
// which is at least 1, or 0 where all others are masked.
struct ClassOdds {
  double logit, best, rest;
};

// Classes per block. Within a block exp is taken relative to the block's largest logit, while it is in the first cache.
constexpr std::ptrdiff_t block_classes = 2048;

// The logits from class k on, `left` classes of the row, without the class `label`: that one and those beyond are -inf.
template <class S>
FOCALCAL_INLINE Lanes<typename Computed<S>::type> load_some(const S *x, std::ptrdiff_t left, std::ptrdiff_t label) {
  using T = typename Computed<S>::type;
  using I = typename Integer<T>::type;
  constexpr T nothing = -std::numeric_limits<T>::infinity();
  const Lanes<T> given = left < Lanes<T>::size ? load_first(x, left, nothing) : load(x);
  return select(lane_numbers<I>() == I(label), Lanes<T>::all(nothing), given);
}

// Reads a row. `shares` gets exp(x - best of its block) of every class, 0 at the label, and `block_best` those bests;
// both are left alone where they are null.
template <bool keep, class S, class T>
FOCALCAL_INLINE ClassOdds read_row(const S *x, std::ptrdiff_t classes, std::ptrdiff_t label, T *shares, T *block_best) {
  constexpr std::ptrdiff_t size = Lanes<T>::size;
  const std::ptrdiff_t whole = classes / size * size, of_label = label / size * size;
  const Lanes<T> around_label = unmasked<S>(load_some(x + of_label, classes - of_label, label - of_label));
  const Lanes<T> last = whole < classes ? unmasked<S>(load_some(x + whole, classes - whole, label - whole)) : Lanes<T>{};
  const auto logits = [&](std::ptrdiff_t k) __attribute__((always_inline)) {
    if (__builtin_expect(k == of_label, 0)) return around_label;
    if (__builtin_expect(k == whole, 0)) return last;
    return unmasked<S>(load(x + k));
  };
  double best = -std::numeric_limits<double>::infinity(), rest = 0;
  for (std::ptrdiff_t from = 0; from < classes; from += block_classes) {
    const std::ptrdiff_t to = from + block_classes < classes ? from + block_classes : classes;
    Lanes<T> high[2] = {Lanes<T>::all(-std::numeric_limits<T>::infinity()),
                        Lanes<T>::all(-std::numeric_limits<T>::infinity())};
    std::ptrdiff_t k = from;
    for (; k + size < to; k += 2 * size) {
      high[0] = larger(high[0], logits(k));
      high[1] = larger(high[1], logits(k + size));
    }
    if (k < to) high[0] = larger(high[0], logits(k));
    T here = largest_of(larger(high[0], high[1]));
    const bool none = here <= T(mask_limit<S>);
    if (none) here = 0;  // whatever is here is masked, and exp of it is 0
    const auto share = [&](std::ptrdiff_t at) __attribute__((always_inline)) {
      const Lanes<T> value = exp(logits(at) - here);
      if (keep) value.store(shares + at);
      return value;
    };
    // Four at a time are added in their own precision before they are added to sums in double precision.
    Lanes<double> sums[2] = {};
    for (k = from; k + 3 * size < to; k += 4 * size) {
      const Lanes<T> first = share(k) + share(k + size), second = share(k + 2 * size) + share(k + 3 * size);
      add_to(sums, first + second);
    }
    for (; k < to; k += size) add_to(sums, share(k));
    if (keep) block_best[from / block_classes] = here;
    const double sum = total_of(sums);
    if (none) {
      rest += sum;  // 0, or NaN where the block has one
    } else if (here > best) {
      rest = rest * std::exp(best - here) + sum;
      best = here;
    } else {
      rest += sum * std::exp(here - best);
    }
  }
  return {double(widen(x[label])), rest == 0 ? 0.0 : best, rest};
}

// -log p, p and 1 - p of classes with these odds.
struct ClassTerms {
  Lanes<double> cross_entropy, p, not_p;
};

FOCALCAL_INLINE ClassTerms terms_of(Lanes<double> logit, Lanes<double> best, Lanes<double> rest) {
  constexpr double far = 690;  // exp of more would overflow, and log(1 + x) is log(x) to the last digit
  const Lanes<double> zero{}, one = Lanes<double>::all(1);
  const auto alone = rest == zero;
  // A label with an infinite logit has no odds.
  const auto endless = logit == Lanes<double>::all(std::numeric_limits<double>::infinity());
  const Lanes<double> nan = Lanes<double>::all(std::numeric_limits<double>::quiet_NaN());
  const Lanes<double> ahead = select(endless, nan, select(alone, zero, best - logit));
  const Lanes<double> against = rest * exp(smaller(ahead, Lanes<double>::all(far)));
  const auto lost = ahead > far;
  const Lanes<double> p = one / (against + one);
  // log alone would take NaN for a number
  return {select(lost, ahead + log(rest) + (rest - rest), log1p(against)), select(lost, zero, p), select(lost, one, against * p)};
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
