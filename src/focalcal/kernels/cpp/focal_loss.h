// Focal loss of rows of logits with its gradient in closed form; kernels/focal_loss.py defines it.
//
// Two loops do the same: `focal_by_row` takes sixteen classes of a row at a time, for rows of many adjacent classes;
// `focal_by_position` takes one class of sixteen rows, for few classes, and for logits (N, K, d1, ...) as they lie.
// What there is of a row that does not depend on the number of classes is computed in double precision.
#pragma once

#include <algorithm>

#include "class_odds.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// Up to eight rows that follow each other, in double precision.
struct EightRows {
  std::ptrdiff_t first, count;
  double logit[8], best[8], rest[8];
  double value[8], slope[8];  // weighted; the gradient is slope / rest * exp(x - best), and -slope at the label

  EightRows(std::ptrdiff_t first, std::ptrdiff_t end) : first(first), count(std::min<std::ptrdiff_t>(8, end - first)) {
    for (int i = 0; i < 8; ++i) logit[i] = best[i] = rest[i] = 0;
  }
  void set(std::ptrdiff_t i, const ClassOdds &odds) {
    logit[i] = odds.logit;
    best[i] = odds.best;
    rest[i] = odds.rest;
  }
  double share(std::ptrdiff_t i) const { return slope[i] / (rest[i] < 1 ? 1.0 : rest[i]); }
};

inline Lanes<double> gamma_of(const FocalJob &job, const EightRows &rows, Lanes<double> p) {
  if (!job.row_gamma && !job.edges) return Lanes<double>::all(job.gamma);
  double held[8] = {};
  for (std::ptrdiff_t i = 0; i < rows.count; ++i)
    held[i] = job.row_gamma ? job.row_gamma[rows.first + i]
                            : job.gammas[std::upper_bound(job.edges, job.edges + job.num_edges, p[i]) - job.edges];
  return Lanes<double>::load(held);
}

// Value and slope of the rows; `core.focal.focal_value_and_slope` has the formula.
inline void finish(const FocalJob &job, EightRows &rows, FocalPart &part) {
  const ClassTerms terms = terms_of(Lanes<double>::load(rows.logit), Lanes<double>::load(rows.best),
                                    Lanes<double>::load(rows.rest));
  if (job.p) {
    for (std::ptrdiff_t i = 0; i < rows.count; ++i) job.p[rows.first + i] = terms.p[i];
    return;
  }
  double weights[8] = {};
  for (std::ptrdiff_t i = 0; i < rows.count; ++i) {
    const std::ptrdiff_t at = rows.first + i;
    const std::int64_t label = job.labels[at];
    if (label == job.ignored) continue;
    weights[i] = job.scale * (job.class_weight ? job.class_weight[label] : 1) * (job.row_weight ? job.row_weight[at] : 1);
    if (rows.logit[i] <= job.mask_limit && weights[i] != 0 && part.masked < 0) part.masked = at;
  }
  const Lanes<double> zero{}, one = Lanes<double>::all(1), weight = Lanes<double>::load(weights);
  const Lanes<double> gamma = gamma_of(job, rows, terms.p);
  const auto inverse = gamma < zero, uncounted = weight == zero;
  const Lanes<double> base = select(inverse, terms.p + one, terms.not_p);
  // The logarithm of 0 is a finite number here, which 0 times -log p makes 0.
  const Lanes<double> power = select(inverse, zero - gamma, gamma) * log(base);
  const Lanes<double> factor = exp(smaller(power, Lanes<double>::all(709)));
  const Lanes<double> bent = gamma * terms.p * terms.cross_entropy * select(inverse, terms.not_p / base, one);
  select(uncounted, zero, factor * terms.cross_entropy * weight).store(rows.value);
  select(uncounted, zero, factor * (terms.not_p + bent) * weight).store(rows.slope);
  for (std::ptrdiff_t i = 0; i < rows.count; ++i) part.sum += rows.value[i];
}

// The values of rows that are not summed; a finite one stays finite.
template <class T> void write_values(const FocalJob &job, const EightRows &rows) {
  if (!job.values) return;
  T *to = static_cast<T *>(job.values) + rows.first;
  constexpr double most = std::numeric_limits<T>::max();
  for (std::ptrdiff_t i = 0; i < rows.count; ++i) to[i] = T(rows.value[i] > most ? most : rows.value[i]);
}

template <class S, class T>
void write_row(S *to, const T *shares, const T *block_best, std::ptrdiff_t classes, std::ptrdiff_t label,
               const EightRows &rows, std::ptrdiff_t i) {
  constexpr std::ptrdiff_t size = Lanes<T>::size;
  for (std::ptrdiff_t from = 0; from < classes; from += block_classes) {
    const std::ptrdiff_t end = std::min(from + block_classes, classes);
    const double block = double(block_best[from / block_classes]) - rows.best[i];
    const T scale = T(block == 0 ? rows.share(i) : rows.share(i) * std::exp(block));
    std::ptrdiff_t k = from;
    for (; k + size <= end; k += size) store(Lanes<T>::load(shares + k) * scale, to + k);
    for (; k < end; ++k) narrow(shares[k] * scale, to[k]);
  }
  narrow(T(-rows.slope[i]), to[label]);
}

template <class S, bool keep> void focal_by_row(const FocalJob &job, std::ptrdiff_t begin, std::ptrdiff_t end, FocalPart &part) {
  using T = typename Computed<S>::type;
  const std::ptrdiff_t classes = job.classes, padded = (classes + Lanes<T>::size - 1) / Lanes<T>::size * Lanes<T>::size;
  const std::ptrdiff_t blocks = (classes + block_classes - 1) / block_classes;
  // As many rows together as stay in the second cache.
  const std::ptrdiff_t together = std::clamp<std::ptrdiff_t>((std::ptrdiff_t(1) << 12) / padded, 1, 8);
  T *shares = keep ? scratch<T>(static_cast<std::size_t>(together * (padded + blocks))) : nullptr;
  T *best = shares + together * padded;
  for (std::ptrdiff_t first = begin; first < end; first += together) {
    EightRows rows(first, std::min(end, first + together));
    std::ptrdiff_t label[8];
    for (std::ptrdiff_t i = 0; i < rows.count; ++i) {
      label[i] = job.labels[first + i] == job.ignored ? 0 : job.labels[first + i];
      const S *x = static_cast<const S *>(job.logits) + (first + i) * job.steps[2];
      rows.set(i, read_row<keep>(x, classes, label[i], shares + i * padded, best + i * blocks));
    }
    finish(job, rows, part);
    write_values<T>(job, rows);
    if (!keep) continue;
    for (std::ptrdiff_t i = 0; i < rows.count; ++i) {
      S *to = static_cast<S *>(job.gradient) + (first + i) * job.gradient_steps[2];
      if (rows.slope[i] == 0) std::fill_n(to, classes, S{});  // also where a row that is not counted is NaN
      else write_row(to, shares + i * padded, best + i * blocks, classes, label[i], rows, i);
    }
  }
}

// As many positions as there are lanes: where their logits begin, and whether those of a class are adjacent.
template <int size> struct Positions {
  std::ptrdiff_t at[size];
  bool adjacent;

  Positions(const FocalJob &job, const std::ptrdiff_t (&steps)[3], std::ptrdiff_t first, std::ptrdiff_t count) {
    std::ptrdiff_t outer = first / job.inner, inner = first % job.inner;
    adjacent = count == size && steps[2] == 1 && inner + size <= job.inner;
    for (int i = 0; i < size; ++i) {
      at[i] = outer * steps[0] + inner * steps[2];
      if (i + 1 < count && ++inner == job.inner) {  // beyond the last one, that one again
        inner = 0;
        ++outer;
      }
    }
  }
};

template <class S, bool keep> void focal_by_position(const FocalJob &job, std::ptrdiff_t begin, std::ptrdiff_t end, FocalPart &part) {
  using T = typename Computed<S>::type;
  using I = typename Integer<T>::type;
  constexpr int size = Lanes<T>::size;
  const Lanes<T> nothing = Lanes<T>::all(-std::numeric_limits<T>::infinity());
  T *held = scratch<T>(static_cast<std::size_t>(job.classes * size));
  for (std::ptrdiff_t first = begin; first < end; first += size) {
    const std::ptrdiff_t count = std::min<std::ptrdiff_t>(size, end - first);
    const Positions<size> from(job, job.steps, first, count);
    const S *data = static_cast<const S *>(job.logits);
    I labels[size];
    for (int i = 0; i < size; ++i) {
      const std::int64_t label = job.labels[first + (i < count ? i : count - 1)];
      labels[i] = label == job.ignored ? 0 : I(label);
    }
    const Lanes<I> label = Lanes<I>::load(labels);
    Lanes<T> best = nothing;
    for (std::ptrdiff_t k = 0; k < job.classes; ++k) {
      const S *x = data + k * job.steps[1];
      Lanes<T> value;
      if (from.adjacent) {
        value = load(x + from.at[0]);
      } else {
        T gathered[size];
        for (int i = 0; i < size; ++i) gathered[i] = T(widen(x[from.at[i]]));
        value = Lanes<T>::load(gathered);
      }
      value = select(label == I(k), nothing, unmasked<S>(value));
      value.store(held + k * size);
      best = larger(best, value);
    }
    const auto none = best <= T(mask_limit<S>);
    best = select(none, Lanes<T>{}, best);
    Lanes<double> sums[2] = {};
    std::ptrdiff_t k = 0;
    const auto share = [&](std::ptrdiff_t at) __attribute__((always_inline)) {
      const Lanes<T> value = exp(Lanes<T>::load(held + at * size) - best);
      if (keep) value.store(held + at * size);
      return value;
    };
    for (; k + 4 <= job.classes; k += 4) add_to(sums, (share(k) + share(k + 1)) + (share(k + 2) + share(k + 3)));
    for (; k < job.classes; ++k) add_to(sums, share(k));
    T bests[size], shares[size], slopes[size];
    best.store(bests);
    for (int half = 0; half * 8 < size; ++half) {
      EightRows rows(first + half * 8, std::max(first + half * 8, first + count));
      double rest[8];
      sums[half].store(rest);
      for (int i = 0; i < 8; ++i) {
        const int lane = half * 8 + i;
        rows.set(i, {double(widen(data[from.at[lane] + labels[lane] * job.steps[1]])), double(bests[lane]), rest[i]});
      }
      finish(job, rows, part);
      write_values<T>(job, rows);
      if (!keep) continue;
      for (int i = 0; i < 8; ++i) {
        shares[half * 8 + i] = T(rows.share(i));
        slopes[half * 8 + i] = T(-rows.slope[i]);
      }
    }
    if (!keep) continue;
    const Positions<size> into(job, job.gradient_steps, first, count);
    const Lanes<T> scale = Lanes<T>::load(shares), at_label = Lanes<T>::load(slopes);
    const auto flat = scale == Lanes<T>{};  // also where a row that is not counted is NaN
    for (k = 0; k < job.classes; ++k) {
      Lanes<T> value = select(flat, Lanes<T>{}, Lanes<T>::load(held + k * size) * scale);
      value = select(label == I(k), at_label, value);
      S *to = static_cast<S *>(job.gradient) + k * job.gradient_steps[1];
      if (into.adjacent) {
        store(value, to + into.at[0]);
      } else {
        T scattered[size];
        value.store(scattered);
        for (std::ptrdiff_t i = 0; i < count; ++i) narrow(scattered[i], to[into.at[i]]);
      }
    }
  }
}

template <class S> void focal_of(const FocalJob &job, std::ptrdiff_t begin, std::ptrdiff_t end, FocalPart &part) {
  const bool keep = job.gradient != nullptr;
  if (job.by_row) return keep ? focal_by_row<S, true>(job, begin, end, part) : focal_by_row<S, false>(job, begin, end, part);
  return keep ? focal_by_position<S, true>(job, begin, end, part) : focal_by_position<S, false>(job, begin, end, part);
}

inline void focal_loss(const FocalJob &job, std::ptrdiff_t begin, std::ptrdiff_t end, FocalPart &part) {
  switch (job.type) {
    case Type::float32: return focal_of<float>(job, begin, end, part);
    case Type::float64: return focal_of<double>(job, begin, end, part);
    case Type::float16: return focal_of<Half>(job, begin, end, part);
    case Type::bfloat16: return focal_of<Brain>(job, begin, end, part);
  }
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
