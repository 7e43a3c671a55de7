// Rows at many points (gamma, T) of the focal temperature family; kernels/focal_grid.py defines what is computed.
//
// Sixteen rows are worked on together, one in each lane. Of a row the distances to its second largest logit are kept:
// what is behind the second is exp(u) <= 1, and nothing that matters underflows, however small T is. In h of all
// classes the power (1 - q)^-gamma of the largest class is left out, because it overflows where that class is sure.
//
// With q = s exp(u), a sum over classes of q times a polynomial in q and q log q is made of the ten sums of
// exp(u)^k u^b, b < k <= 4, which serve all gammas of one T. The polynomial is right for q <= 1/9: of the second to the
// eighth class, those with more are computed by themselves.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "dispatch.h"
#include "lanes.h"

namespace focalcal {
namespace FOCALCAL_ISA {

using Rows = Lanes<float>;

constexpr int row_lanes = 16, moments = 10;
// Places of a prepared block: the second logit behind the first, the label behind the first, then the third and further
// classes behind the second, the third to eighth being the largest of them, in order.
constexpr int second_place = 0, label_place = 1, third_place = 2;
constexpr int most_near = 7;  // the second to the eighth class
constexpr float most_small = 1.0f / 9;
constexpr float no_class = -1e30f;
// Sums are taken over so many classes, then added up, so that many classes do not lose digits.
constexpr std::ptrdiff_t classes_together = 128;

// ---------------------------------------------------------------------- preparing rows

// How far scores are behind others; a class that is masked is further behind than any other.
template <class T> FOCALCAL_INLINE void store_behind(Lanes<T> scores, Lanes<T> others, float *out) {
  const Lanes<T> distance = larger(Lanes<T>::all(no_class), scores - others);
  for (int lane = 0; lane < Lanes<T>::size; ++lane) out[lane] = static_cast<float>(distance[lane]);
}

// Whether the first of the largest scores is the label's.
template <class S, class T> bool label_is_first(const S *x, std::int64_t label, T first, T second) {
  if (widen(x[label]) != first) return false;
  if (second < first) return true;
  return std::none_of(x, x + label, [first](S earlier) { return widen(earlier) == first; });
}

// One lane per row, eight or sixteen rows. Of every class that comes, the largest eight so far are kept in order, and
// what they leave goes to the others, whose order does not matter.
template <class S, class T = typename Computed<S>::type>
void prepare_lanes(const S *const *x, const std::int64_t *labels, std::ptrdiff_t classes, T *others, float *out,
                   std::uint8_t *correct) {
  using L = Lanes<T>;
  constexpr int kept = most_near + 1;
  L largest[kept];
  std::fill(largest, largest + kept, L::all(-std::numeric_limits<T>::infinity()));
  for (std::ptrdiff_t k = 0; k < classes; ++k) {
    T scores[L::size];
    for (int lane = 0; lane < L::size; ++lane) scores[lane] = widen(x[lane][k]);
    L left = L::load(scores);
#pragma GCC unroll 8
    for (int i = 0; i < kept; ++i) {
      const L lower = smaller(largest[i], left);
      largest[i] = larger(largest[i], left);
      left = lower;
    }
    left.store(others + k * L::size);
  }
  const L first = largest[0], second = largest[1];
  T at_label[L::size];
  for (int lane = 0; lane < L::size; ++lane) {
    at_label[lane] = widen(x[lane][labels[lane]]);
    correct[lane] = label_is_first(x[lane], labels[lane], first[lane], second[lane]);
  }
  store_behind(second, first, out + second_place * row_lanes);
  store_behind(L::load(at_label), first, out + label_place * row_lanes);
  for (std::ptrdiff_t k = third_place; k < classes; ++k)  // the first eight times nothing was left
    store_behind(k < kept ? largest[k] : L::load(others + k * L::size), second, out + k * row_lanes);
}

template <class S>
void prepare_blocks(const Scores &scores, const std::int64_t *labels, std::ptrdiff_t begin, std::ptrdiff_t end,
                    float *prepared, std::uint8_t *correct) {
  using T = typename Computed<S>::type;
  constexpr int size = Lanes<T>::size;
  std::vector<T> others(scores.classes * size);
  const std::ptrdiff_t filled = (end + row_lanes - 1) / row_lanes * row_lanes;
  for (std::ptrdiff_t row = begin; row < filled; row += size) {
    const S *x[size];
    std::int64_t label[size];
    std::uint8_t right[size];
    for (int lane = 0; lane < size; ++lane) {  // beyond the last row, that row again
      const std::ptrdiff_t at = std::min(row + lane, end - 1);
      x[lane] = static_cast<const S *>(scores.data) + at * scores.stride;
      label[lane] = labels[at];
    }
    float *out = prepared + row / row_lanes * row_lanes * scores.classes + row % row_lanes;
    prepare_lanes(x, label, scores.classes, others.data(), out, right);
    for (std::ptrdiff_t lane = 0; lane < size && row + lane < end; ++lane) correct[row + lane] = right[lane];
  }
}

inline void prepare_grid(const Scores &scores, const std::int64_t *labels, std::ptrdiff_t begin, std::ptrdiff_t end,
                         float *prepared, std::uint8_t *correct) {
  switch (scores.type) {
    case Type::float32: return prepare_blocks<float>(scores, labels, begin, end, prepared, correct);
    case Type::float64: return prepare_blocks<double>(scores, labels, begin, end, prepared, correct);
    case Type::float16: return prepare_blocks<Half>(scores, labels, begin, end, prepared, correct);
    case Type::bfloat16: return prepare_blocks<Brain>(scores, labels, begin, end, prepared, correct);
  }
}

// ---------------------------------------------------------------------- sums over classes

// 2^w for w in [-126, 0], right to 1e-7 and exactly 1 for 0: with n = round(w), 2^w = 2^n 2^(w - n).
FOCALCAL_INLINE Rows power_of_two(Rows w) {
  constexpr float rounder = Format<float>::rounder;
  const Rows shifted = w + rounder, f = w - (shifted - rounder);
  Rows sum = Rows::all(1.3264727e-3f);  // the least largest relative error for |f| <= 1/2
  sum = sum * f + 9.6715130e-3f;
  sum = sum * f + 5.5507336e-2f;
  sum = sum * f + 2.4022242e-1f;
  sum = sum * f + 6.9314700e-1f;
  sum = sum * f + 1.0f;
  Lanes<std::int32_t> bits = bits_as<std::int32_t>(sum), power = bits_as<std::int32_t>(shifted);
  FOCALCAL_PARTS bits.v[i] += power.v[i] << Format<float>::mantissa;
  return bits_as<float>(bits);
}

// How many powers of two exp(u) of a class is: no less than -126, where it is nothing beside the second class.
FOCALCAL_INLINE Rows powers_behind(const float *block, std::ptrdiff_t k, float inverse) {
  return larger(Rows::load(block + k * row_lanes) * (inverse * 1.44269504f), Rows::all(-126.0f));
}

// Sums of e^k u^b in the order (k, b) = (1, 0), (2, 0), (2, 1), (3, 0), ..., (4, 3).
struct Moments {
  Rows sum[moments] = {};

  FOCALCAL_INLINE void add(Rows e, Rows u) {
    const Rows v = e * u, ee = e * e, ev = e * v, vv = v * v;
    sum[0] += e;
    sum[1] += ee;
    sum[2] += ev;
    sum[3] += ee * e;
    sum[4] += ee * v;
    sum[5] += ev * v;
    sum[6] += ee * ee;
    sum[7] += ee * ev;
    sum[8] += ev * ev;
    sum[9] += ev * vv;
  }
  FOCALCAL_INLINE void add(const Moments &other) {
    for (int i = 0; i < moments; ++i) sum[i] += other.sum[i];
  }
  // From u in powers of two to u in powers of e.
  FOCALCAL_INLINE void change_base() {
    constexpr float log2 = 0.693147181f;
    for (int i : {2, 4, 7}) sum[i] = sum[i] * log2;
    for (int i : {5, 8}) sum[i] = sum[i] * (log2 * log2);
    sum[9] = sum[9] * (log2 * log2 * log2);
  }
};

// The moments of the classes from `begin` on.
inline Moments far_moments(const float *block, std::ptrdiff_t begin, std::ptrdiff_t classes, float inverse) {
  Moments all;
  for (std::ptrdiff_t from = begin; from < classes; from += classes_together) {
    Moments some;
    const std::ptrdiff_t to = std::min(classes, from + classes_together);
    for (std::ptrdiff_t k = from; k < to; ++k) {
      const Rows w = powers_behind(block, k, inverse);
      some.add(power_of_two(w), w);
    }
    all.add(some);
  }
  all.change_base();
  return all;
}

// The sum of exp(u) alone.
inline Rows far_sum(const float *block, std::ptrdiff_t begin, std::ptrdiff_t classes, float inverse) {
  Rows all{};
  for (std::ptrdiff_t from = begin; from < classes; from += classes_together) {
    Rows some{};
    const std::ptrdiff_t to = std::min(classes, from + classes_together);
    for (std::ptrdiff_t k = from; k < to; ++k) some += power_of_two(powers_behind(block, k, inverse));
    all += some;
  }
  return all;
}

// -q log q / (1 - q)
FOCALCAL_INLINE Rows slope_of(Rows q, Rows log_q, Rows not_q) { return Rows{} - q * log_q / not_q; }

// A class by itself: what gives h for any gamma.
struct OneClass {
  Rows log_q, ahead, r;  // ahead: log(1 - q) minus that of the largest class

  // 1 - q does not cancel: only the largest class may have more than 1/2.
  FOCALCAL_INLINE OneClass(Rows given, Rows log_not_first) : log_q(larger(Rows::all(2 * no_class), given)) {
    const Rows q = exp(log_q), not_q = Rows::all(1.0f) - q;
    ahead = log(not_q) - log_not_first;
    r = slope_of(q, log_q, not_q);
  }
  OneClass() = default;
  FOCALCAL_INLINE Rows h(float gamma) const { return exp(log_q - ahead * gamma) / (r * gamma + 1.0f); }
};

// Sixteen rows at one temperature: what is the same for all gammas.
struct Tempered {
  const float *block;
  std::ptrdiff_t classes;
  float inverse;
  Rows rest, log_whole;         // the sum of exp over all but the first class, relative to the first; log(1 + rest)
  Rows log_scale, log_behind;   // q = exp(log_scale + u); log of the sum of exp(u)
  Rows log_not_first, r_first;  // log(1 - q) and r of the first class
  Rows terms[moments];          // sums of q times each monomial, up to powers of s
  Rows scale;                   // s
  OneClass near[most_near];
  Rows::Mask is_near[most_near];
  int num_near = 0;

  FOCALCAL_INLINE Tempered(const float *block, std::ptrdiff_t classes, float inverse)
      : block(block), classes(classes), inverse(inverse) {}

  FOCALCAL_INLINE Rows behind_second(std::ptrdiff_t k) const { return Rows::load(block + k * row_lanes) * inverse; }

  FOCALCAL_INLINE void set_whole(Rows sum) {
    const Rows second = larger(Rows::all(no_class), behind_second(second_place));
    rest = exp(second) * sum;
    log_whole = log1p(rest);
    log_behind = log(sum);
    log_scale = second - log_whole;
    log_not_first = log_scale + log_behind;
    r_first = select(rest > 1e-30f, log_whole / rest, Rows::all(1.0f));
  }

  // Without gamma h is q, and the sum of exp(u) is all there is to know.
  FOCALCAL_INLINE void plain() {
    set_whole(far_sum(block, third_place, classes, inverse) + 1.0f);
  }

  FOCALCAL_INLINE void full() {
    const int candidates = static_cast<int>(std::min<std::ptrdiff_t>(most_near, classes - 1));
    Moments sums = far_moments(block, third_place + candidates - 1, classes, inverse);
    Rows u[most_near], e[most_near], whole = sums.sum[0];
    for (int i = 0; i < candidates; ++i) {
      u[i] = i ? behind_second(third_place + i - 1) : Rows{};
      e[i] = exp(u[i]);
      whole += e[i];
    }
    set_whole(whole);
    scale = exp(log_scale);
    bool any = true;
    for (int i = 0; i < candidates; ++i) {
      const Rows::Mask large = e[i] * scale > most_small;
      any = any && any_of(large);  // they are in order: no later one is larger
      if (any) {
        near[i] = OneClass(u[i] + log_scale, log_not_first);
        is_near[i] = large;
        num_near = i + 1;
      }
      sums.add(select(large, Rows{}, e[i]), u[i]);
    }
    set_terms(sums);
  }

  // From exp(u)^k u^b to q (q log q)^b q^(k-1-b): with log q = u + log s, by the binomial theorem. Nothing cancels,
  // because neither u nor log s is positive. Of the powers of s, one is left to the factor of family_sums, and another
  // one is left out where there are two, which squares of h need where s underflows.
  FOCALCAL_INLINE void set_terms(const Moments &sums) {
    const Rows *m = sums.sum, l = larger(log_scale, Rows::all(-100.0f)), ss = scale * scale;
    terms[0] = m[0];
    terms[1] = m[1];
    terms[2] = m[2] + l * m[1];
    terms[3] = scale * m[3];
    terms[4] = scale * (m[4] + l * m[3]);
    terms[5] = scale * (m[5] + l * (m[4] * 2.0f + l * m[3]));
    terms[6] = ss * m[6];
    terms[7] = ss * (m[7] + l * m[6]);
    terms[8] = ss * (m[8] + l * (m[7] * 2.0f + l * m[6]));
    terms[9] = ss * (m[9] + l * (m[8] * 3.0f + l * (m[7] * 3.0f + l * m[6])));
  }

  // A sum over classes of a polynomial without a constant term; a power of s is missing.
  FOCALCAL_INLINE Rows sum_of_terms(const float *coefficients) const {
    Rows sum = terms[1] * coefficients[1];
    for (int i = 2; i < moments; ++i) sum += terms[i] * coefficients[i];
    return sum;
  }
};

// h of the first class, the sum of h over all classes and, where asked for, that of its square.
struct FamilySums {
  Rows first, total, squares;
};

// Class by class, for a gamma that the polynomial is not right for.
template <bool squared> inline void add_each_class(const Tempered &rows, float gamma, FamilySums &sums) {
  for (std::ptrdiff_t from = third_place - 1; from < rows.classes; from += classes_together) {
    Rows total{}, squares{};
    const std::ptrdiff_t to = std::min(rows.classes, from + classes_together);
    for (std::ptrdiff_t k = from; k < to; ++k) {
      const Rows u = k < third_place ? Rows{} : rows.behind_second(k);
      const Rows h = OneClass(u + rows.log_scale, rows.log_not_first).h(gamma);
      total += h;
      if (squared) squares += h * h;
    }
    sums.total += total;
    if (squared) sums.squares += squares;
  }
}

template <bool squared> FOCALCAL_INLINE FamilySums family_sums(const Tempered &rows, const GridPoint &point) {
  FamilySums sums;
  sums.first = exp(Rows{} - rows.log_whole) / (rows.r_first * point.gamma + 1.0f);
  sums.total = sums.first;
  if (squared) sums.squares = sums.first * sums.first;
  if (!point.linear) {
    add_each_class<squared>(rows, point.gamma, sums);
    return sums;
  }
  const Rows factor = exp(rows.log_scale * (1 + point.gamma) + rows.log_behind * point.gamma);
  sums.total += factor * (rows.terms[0] * point.linear[0] + rows.scale * rows.sum_of_terms(point.linear));
  if (squared) sums.squares += factor * factor * rows.sum_of_terms(point.square);
  for (int i = 0; i < rows.num_near; ++i) {
    const Rows h = select(rows.is_near[i], rows.near[i].h(point.gamma), Rows{});
    sums.total += h;
    if (squared) sums.squares += h * h;
  }
  return sums;
}

// ---------------------------------------------------------------------- what is asked of rows

inline bool is_plain(const GridPoint *begin, const GridPoint *end) {
  return std::all_of(begin, end, [](const GridPoint &point) { return point.gamma == 0; });
}

// The confidences of the rows of some blocks at all points: (P, rows), those of a point `step` apart.
inline void grid_confidences(const GridRows &rows, const GridLines &lines, std::ptrdiff_t begin, std::ptrdiff_t end,
                             float *out, std::ptrdiff_t step) {
  for (std::ptrdiff_t row = begin; row < end; row += row_lanes) {
    const std::ptrdiff_t held = std::min<std::ptrdiff_t>(row_lanes, end - row);
    for (std::ptrdiff_t line = 0; line < lines.count; ++line) {
      const GridPoint *point = lines.points + lines.first[line], *last = lines.points + lines.first[line + 1];
      Tempered tempered(rows.prepared + row * rows.classes, rows.classes, lines.inverse[line]);
      const bool plain = is_plain(point, last);
      plain ? tempered.plain() : tempered.full();
      for (; point < last; ++point) {
        Rows confidence;
        if (point->gamma == 0) {
          confidence = Rows::all(1.0f) / (tempered.rest + 1.0f);
        } else {
          const FamilySums sums = family_sums<false>(tempered, *point);
          confidence = smaller(sums.first / sums.total, Rows::all(1.0f));
        }
        float *to = out + (point - lines.points) * step + row;
        if (held == row_lanes) {
          confidence.store(to);
        } else {
          float last_rows[row_lanes];
          confidence.store(last_rows);
          std::copy(last_rows, last_rows + held, to);
        }
      }
    }
  }
}

// log h of the label
FOCALCAL_INLINE Rows log_h_of_label(const Tempered &rows, const OneClass &label, Rows::Mask is_first, float gamma) {
  const Rows ahead = select(is_first, Rows{}, label.ahead), r = select(is_first, rows.r_first, label.r);
  return label.log_q - ahead * gamma - log(r * gamma + 1.0f);
}

template <bool brier>
void grid_sums_of(const GridRows &rows, const GridLines &lines, std::ptrdiff_t begin, std::ptrdiff_t end,
                  float loss_gamma, double *out) {
  for (std::ptrdiff_t row = begin; row < end; row += row_lanes) {
    const std::ptrdiff_t held = std::min<std::ptrdiff_t>(row_lanes, end - row);
    double weight[row_lanes] = {};
    std::int32_t correct[row_lanes] = {};
    for (std::ptrdiff_t lane = 0; lane < row_lanes; ++lane)
      correct[lane] = rows.correct[std::min(row + lane, end - 1)] ? -1 : 0;
    for (std::ptrdiff_t lane = 0; lane < held; ++lane) weight[lane] = rows.weight ? rows.weight[row + lane] : 1;
    const Rows::Mask is_first = Rows::Mask::load(correct);
    const Lanes<double> weights[2] = {Lanes<double>::load(weight), Lanes<double>::load(weight + 8)};
    const float *block = rows.prepared + row * rows.classes;
    for (std::ptrdiff_t line = 0; line < lines.count; ++line) {
      Tempered tempered(block, rows.classes, lines.inverse[line]);
      tempered.full();
      const Rows log_q = tempered.behind_second(label_place) - tempered.log_whole;
      const OneClass label(log_q, tempered.log_not_first);
      for (std::ptrdiff_t at = lines.first[line]; at < lines.first[line + 1]; ++at) {
        const FamilySums sums = family_sums<brier>(tempered, lines.points[at]);
        const Rows log_h = log_h_of_label(tempered, label, is_first, lines.points[at].gamma);
        Rows value;
        if (brier) {
          const Rows p = exp(log_h) / sums.total;
          value = sums.squares / (sums.total * sums.total) - p * 2.0f + 1.0f;
        } else {
          value = larger(log(sums.total) - log_h, Rows{});
          if (loss_gamma != 0) {
            const Rows missed = larger(Rows::all(1.0f) - exp(Rows{} - value), Rows::all(1e-30f));
            value = value * exp(log(missed) * loss_gamma);
          }
        }
        out[at] += sum_of(widened<0>(value) * weights[0] + widened<1>(value) * weights[1]);
      }
    }
  }
}

// Sums over rows of NLL, of focal loss or of the Brier score at all points, added to those in `out`.
inline void grid_sums(const GridRows &rows, const GridLines &lines, std::ptrdiff_t begin, std::ptrdiff_t end, bool brier,
                      float loss_gamma, double *out) {
  brier ? grid_sums_of<true>(rows, lines, begin, end, loss_gamma, out)
        : grid_sums_of<false>(rows, lines, begin, end, loss_gamma, out);
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
