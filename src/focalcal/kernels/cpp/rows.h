// What each row of scores says, in one pass: confidence, correctness, NLL, Brier score, entropy, rank, and the sums of
// every class. kernels/rows.py has the formulas in torch and their names.
//
// With t the predicted class, every sum runs over the other classes, so that nothing cancels however sure a row is.
// Few classes: a lane per row, sixteen rows together. Many classes: a lane per class, row after row.
#pragma once

#include <cmath>
#include <vector>

#include "dispatch.h"
#include "transpose.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// Floats that a lane adds up before the sum goes on in double precision.
constexpr int added_in_single = 16;

// What is known of a group of rows before the last formulas, which run in double precision. Shares are proportional to
// probabilities; `best` and `label_score` are logits or logarithms of probabilities.
struct Group {
  static constexpr int size = 16;
  double best[size], first[size], rest[size], squares[size], spread[size];
  double label_score[size], label_share[size], target_share[size];
  std::int64_t top[size], label[size], rank[size];
};

template <class V> FOCALCAL_INLINE void put(V *to, const V *from, std::ptrdiff_t begin, int count) {
  if (to) std::memcpy(to + begin, from, count * sizeof(V));
}

// The confidence of a class with this share of the whole.
template <Kind kind> FOCALCAL_INLINE Lanes<double> confidence_of(Lanes<double> share, Lanes<double> whole) {
  // By rounding a given probability may be above 1.
  return kind == Kind::logits ? share / whole : smaller(share, Lanes<double>::all(1));
}

// Whether a column is asked for that needs more of a row than its confidence.
inline bool wants_logarithms(const RowsOutput &out) { return out.nll || out.brier || out.entropy || out.energy; }

// Writes the columns of `count` rows from `begin` on.
template <class T, Kind kind>
void finish(const RowsInput &in, const RowsOutput &out, const Group &g, std::ptrdiff_t begin, int count) {
  using D = Lanes<double>;
  constexpr int size = Group::size;
  double nll[size], brier[size], entropy[size], energy[size], top_confidence[size];
  T confidence[size];
  std::uint8_t correct[size];
  const bool logarithms = wants_logarithms(out);
  for (int i = 0; i < count; i += D::size) {
    const D first = D::load(g.first + i), rest = D::load(g.rest + i), whole = first + rest, best = D::load(g.best + i);
    narrow(confidence_of<kind>(in.target < 0 ? first : D::load(g.target_share + i), whole), confidence + i);
    const auto usable = best < D::all(std::numeric_limits<double>::infinity());
    select(usable, first / whole, D::all(std::numeric_limits<double>::quiet_NaN())).store(top_confidence + i);
    if (!logarithms) continue;
    const D surplus = log1p(rest / first), spread = D::load(g.spread + i);  // minus the logarithm of the largest probability
    (best + surplus).store(energy + i);
    (best - D::load(g.label_score + i) + surplus).store(nll + i);
    (surplus + (kind == Kind::probs ? best * rest - spread : D{} - spread) / whole).store(entropy + i);
    // All in shares, whose sum is not quite 1: the label's probability 1 is `whole`.
    const D missed = first * first + whole * (whole - D::load(g.label_share + i) * 2.0);
    const auto right = Lanes<std::int64_t>::load(g.top + i) == Lanes<std::int64_t>::load(g.label + i);
    ((D::load(g.squares + i) + select(right, rest * rest, missed)) / (whole * whole)).store(brier + i);
  }
  for (int i = 0; i < count; ++i) correct[i] = g.label[i] == (in.target < 0 ? g.top[i] : in.target);
  put(static_cast<T *>(out.confidence), confidence, begin, count);
  put(out.correct, correct, begin, count);
  put(out.nll, nll, begin, count);
  put(out.brier, brier, begin, count);
  put(out.entropy, entropy, begin, count);
  put(out.energy, energy, begin, count);
  put(out.rank, g.rank, begin, count);
  put(out.top, g.top, begin, count);
  put(out.top_confidence, top_confidence, begin, count);
}

// What a score says of a class: its share, and the score behind the best one of the row.
template <Kind kind, class T> FOCALCAL_INLINE Lanes<T> behind_of(Lanes<T> score, Lanes<T> best) {
  return larger(score - best, Lanes<T>::all(T(-1e4)));  // finite: times a share of 0 it is 0
}
template <Kind kind, class T> FOCALCAL_INLINE Lanes<T> share_of(Lanes<T> score, Lanes<T> behind) {
  if (kind == Kind::probs) return larger(score, Lanes<T>{});
  return exp(kind == Kind::logits ? behind : score);
}
// What a class adds to the entropy's sum.
template <Kind kind, class T> FOCALCAL_INLINE Lanes<T> spread_of(Lanes<T> share, Lanes<T> behind) {
  if (kind != Kind::probs) return share * behind;
  const Lanes<T> tiny = Lanes<T>::all(std::numeric_limits<T>::min());
  return select(share < tiny, Lanes<T>{}, share * log(larger(share, tiny)));
}
// The share of the predicted class, and its score as the formulas want it.
template <Kind kind> FOCALCAL_INLINE double first_of(double best) {
  return kind == Kind::logits ? 1.0 : kind == Kind::probs ? best : std::exp(best);
}
template <Kind kind> FOCALCAL_INLINE double logarithmic(double score) {
  return kind == Kind::probs ? std::log(score) : score;
}

// The bins of the classes' probabilities, in the precision of those.
template <class T> struct ClassBins {
  const RowsInput &in;
  ClassTask &task;
  std::vector<T> edges;  // between the bins
  T first_edge = std::numeric_limits<T>::infinity();

  ClassBins(const RowsInput &in, ClassTask &task) : in(in), task(task) {
    for (int bin = 1; bin < task.num_bins; ++bin) edges.push_back(T(double(bin) / task.num_bins));
    if (!edges.empty()) first_edge = edges[0];
  }
  FOCALCAL_INLINE double weight(std::ptrdiff_t row) const { return in.weight ? in.weight[row] : 1.0; }
  // The bin (lower, upper] of a probability.
  FOCALCAL_INLINE int bin_of(T p) const {
    int bin = static_cast<int>(p * T(task.num_bins));
    bin = bin < 0 ? 0 : bin >= task.num_bins ? task.num_bins - 1 : bin;
    while (bin > 0 && p <= edges[bin - 1]) --bin;
    while (bin < task.num_bins - 1 && p > edges[bin]) ++bin;
    return bin;
  }
  FOCALCAL_INLINE std::int64_t place(std::ptrdiff_t k, T p) const { return k * task.num_bins + bin_of(p); }
};

// ------------------------------------------------------------------------------------------------ few classes

// A group of rows, a lane each.
template <class T> struct FewRows {
  Lanes<T> score[few_classes], share[few_classes], best;
  typename Lanes<T>::Mask top;

  const T *scores() const { return reinterpret_cast<const T *>(score); }
  const T *shares() const { return reinterpret_cast<const T *>(share); }
};

// Rows from `begin`; lanes without a row repeat the last one.
template <class S, class T>
FOCALCAL_INLINE void transpose(const RowsInput &in, std::ptrdiff_t begin, int count, FewRows<T> &rows) {
  constexpr int size = Lanes<T>::size;
  const std::ptrdiff_t classes = in.scores.classes;
  const S *from[size];
  for (int lane = 0; lane < size; ++lane)
    from[lane] = static_cast<const S *>(in.scores.data) + (begin + (lane < count ? lane : count - 1)) * in.scores.stride;
  transpose_rows(from, classes, reinterpret_cast<T *>(rows.score));
  const auto limit = Lanes<T>::all(T(in.mask_limit)), none = Lanes<T>::all(-std::numeric_limits<T>::infinity());
  for (std::ptrdiff_t k = 0; k < classes; ++k) rows.score[k] = select(rows.score[k] <= limit, none, rows.score[k]);
}

// The largest score of each row, and the first class that has it.
template <class T> FOCALCAL_INLINE void predict(FewRows<T> &rows, std::ptrdiff_t classes) {
  using I = typename Integer<T>::type;
  rows.best = rows.score[0];
  rows.top = {};
  for (std::ptrdiff_t k = 1; k < classes; ++k) {
    rows.top = select(rows.score[k] > rows.best, Lanes<I>::all(I(k)), rows.top);
    rows.best = larger(rows.best, rows.score[k]);
  }
}

// The shares of all classes but the predicted one, and their sums; the others of those only if `all` are wanted.
template <class T, Kind kind, bool all>
FOCALCAL_INLINE void add_shares(FewRows<T> &rows, std::ptrdiff_t classes, Group &g) {
  using L = Lanes<T>;
  using I = typename Integer<T>::type;
  Lanes<double> rest[2] = {}, squares[2] = {}, spread[2] = {};
  for (std::ptrdiff_t start = 0; start < classes; start += added_in_single) {
    L part{}, part_squares{}, part_spread{};
    const std::ptrdiff_t stop = start + added_in_single < classes ? start + added_in_single : classes;
    for (std::ptrdiff_t k = start; k < stop; ++k) {
      const L behind = all ? behind_of<kind>(rows.score[k], rows.best) : rows.score[k] - rows.best;
      const L share = select(rows.top == I(k), L{}, share_of<kind>(rows.score[k], behind));
      rows.share[k] = share;
      part += share;
      if (all) {
        part_squares += share * share;
        part_spread += spread_of<kind>(share, behind);
      }
    }
    add_to(rest, part);
    add_to(squares, part_squares);
    add_to(spread, part_spread);
  }
  for (int half = 0; half < L::size / 8; ++half) {
    rest[half].store(g.rest + 8 * half);
    squares[half].store(g.squares + 8 * half);
    spread[half].store(g.spread + 8 * half);
  }
}

// How many classes come before the label: higher scores, and equal ones with lower numbers.
template <class T>
FOCALCAL_INLINE void rank_labels(const FewRows<T> &rows, std::ptrdiff_t classes, int count, Group &g) {
  using I = typename Integer<T>::type;
  constexpr int size = Lanes<T>::size;
  T scores[size] = {};
  I labels[size] = {}, found[size];
  for (int i = 0; i < count; ++i) {
    labels[i] = I(g.label[i]);
    scores[i] = rows.scores()[g.label[i] * size + i];
  }
  const auto mine = Lanes<T>::load(scores);
  const auto label = Lanes<I>::load(labels);
  Lanes<I> before{};
  for (std::ptrdiff_t k = 0; k < classes; ++k)
    before = before - ((rows.score[k] > mine) | ((rows.score[k] == mine) & (label > I(k))));
  before.store(found);
  for (int i = 0; i < count; ++i) g.rank[i] = found[i];
}

template <class T, Kind kind>
FOCALCAL_INLINE void describe(const RowsInput &in, const RowsOutput &out, const FewRows<T> &rows, std::ptrdiff_t begin,
                              int count, Group &g) {
  constexpr int size = Lanes<T>::size;
  T best[size];
  typename Integer<T>::type top[size];
  rows.best.store(best);
  rows.top.store(top);
  for (int i = 0; i < count; ++i) {
    g.top[i] = top[i];
    g.label[i] = in.labels ? in.labels[begin + i] : g.top[i];
    g.first[i] = first_of<kind>(best[i]);
    g.best[i] = logarithmic<kind>(best[i]);
    g.label_score[i] = logarithmic<kind>(rows.scores()[g.label[i] * size + i]);
    g.label_share[i] = rows.shares()[g.label[i] * size + i];
    if (in.target >= 0)
      g.target_share[i] = in.target == g.top[i] ? g.first[i] : double(rows.shares()[in.target * size + i]);
  }
  if (out.rank) rank_labels(rows, in.scores.classes, count, g);
}

template <class T, Kind kind>
FOCALCAL_INLINE void add_classes(ClassBins<T> &bins, FewRows<T> &rows, const Group &g, std::ptrdiff_t begin, int count,
                                 Lanes<double> (*columns)[2]) {
  using L = Lanes<T>;
  using I = typename Integer<T>::type;
  using D = Lanes<double>;
  constexpr int size = L::size;
  const std::ptrdiff_t classes = bins.in.scores.classes, table = classes * bins.task.num_bins;
  double weights[Group::size] = {}, *sums = bins.task.table.data();
  for (int i = 0; i < count; ++i) weights[i] = bins.weight(begin + i);
  T whole[Group::size], first[Group::size];
  for (int i = 0; i < size; i += 8) {
    const D share = D::load(g.first + i), sum = share + D::load(g.rest + i);
    narrow(sum, whole + i);
    narrow(confidence_of<kind>(share, sum), first + i);
  }
  const L top = L::load(first), sum = L::load(whole);
  const std::uint32_t rows_here = (1u << count) - 1;
  for (std::ptrdiff_t k = 0; k < classes; ++k) {
    const L share = kind == Kind::logits ? rows.share[k] / sum : rows.share[k];
    const L p = rows.share[k] = select(rows.top == I(k), top, share);
    D wide[2] = {};
    add_to(wide, p);
    columns[k][0] += wide[0] * D::load(weights);
    if (size == 16) columns[k][1] += wide[1] * D::load(weights + 8);
    for (std::uint32_t above = bits_of(p > bins.first_edge) & rows_here; above; above &= above - 1) {
      const int i = __builtin_ctz(above);
      const T value = rows.shares()[k * size + i];
      double *sum_at = sums + bins.place(k, value);
      sum_at[0] += 1;
      if (bins.in.weight) sum_at[table] += weights[i];  // without weights the mass is the count
      sum_at[2 * table] += weights[i] * double(value);
    }
  }
  for (int i = 0; i < count; ++i)
    sums[3 * table + bins.place(g.label[i], rows.shares()[g.label[i] * size + i])] += weights[i];
}

template <class S, Kind kind, bool all>
void few_rows(const RowsInput &in, const RowsOutput &out, std::ptrdiff_t begin, std::ptrdiff_t end, ClassTask *task) {
  using T = typename Computed<S>::type;
  constexpr int size = Lanes<T>::size;
  const std::ptrdiff_t classes = in.scores.classes;
  FewRows<T> rows;
  Lanes<double> columns[few_classes][2] = {};
  Group g = {};
  for (double &first : g.first) first = 1;
  ClassTask none;
  ClassBins<T> bins(in, task ? *task : none);
  for (std::ptrdiff_t row = begin; row < end; row += size) {
    const int count = static_cast<int>(end - row < size ? end - row : size);
    transpose<S>(in, row, count, rows);
    predict(rows, classes);
    add_shares<T, kind, all>(rows, classes, g);
    describe<T, kind>(in, out, rows, row, count, g);
    finish<T, kind>(in, out, g, row, count);
    if (task) add_classes<T, kind>(bins, rows, g, row, count, columns);
  }
  if (!task) return;
  for (std::ptrdiff_t k = 0; k < classes; ++k) task->columns[k] = total_of(columns[k]);
  const std::ptrdiff_t table = classes * task->num_bins;
  if (!in.weight) std::copy_n(task->table.data(), table, task->table.data() + table);
}

// ------------------------------------------------------------------------------------------------ many classes

// One row in the type that is computed in, padded with -inf to whole lanes.
template <class T> struct LongRow {
  std::ptrdiff_t classes, padded;
  std::vector<T> held;
  T *score, *share;

  explicit LongRow(std::ptrdiff_t classes)
      : classes(classes), padded((classes + Lanes<T>::size - 1) / Lanes<T>::size * Lanes<T>::size), held(2 * padded),
        score(held.data()), share(score + padded) {}
};

// Copies the row, masks as -inf; gives its largest score.
template <class S, class T> FOCALCAL_INLINE T copy_row(const S *from, T mask_limit, LongRow<T> &row) {
  constexpr int size = Lanes<T>::size;
  constexpr T minus_infinity = -std::numeric_limits<T>::infinity();
  const auto limit = Lanes<T>::all(mask_limit), none = Lanes<T>::all(minus_infinity);
  Lanes<T> best = none;
  for (std::ptrdiff_t k = 0; k < row.padded; k += size) {
    Lanes<T> value = k + size <= row.classes ? load(from + k) : load_first(from + k, row.classes - k, minus_infinity);
    value = select(value <= limit, none, value);
    value.store(row.score + k);
    best = larger(best, value);
  }
  return largest_of(best);
}

// The first class with this score.
template <class T> FOCALCAL_INLINE std::ptrdiff_t place_of(T score, const LongRow<T> &row) {
  for (std::ptrdiff_t k = 0; k < row.padded; k += Lanes<T>::size)
    if (const std::uint32_t equal = bits_of(Lanes<T>::load(row.score + k) == score)) return k + __builtin_ctz(equal);
  return 0;
}

// How many classes come before a label that is not the predicted one, whose own score is -inf by now.
template <class T> FOCALCAL_INLINE std::int64_t rank_of(std::ptrdiff_t label, const LongRow<T> &row) {
  const T mine = row.score[label];
  std::int64_t before = 1;
  for (std::ptrdiff_t k = 0; k < row.padded; k += Lanes<T>::size) {
    const auto score = Lanes<T>::load(row.score + k);
    before += __builtin_popcount(bits_of(score > mine));
    if (k >= label) continue;
    const std::ptrdiff_t lower = label - k;
    const std::uint32_t equal = bits_of(score == mine);
    before += __builtin_popcount(lower < Lanes<T>::size ? equal & ((1u << lower) - 1) : equal);
  }
  return before;
}

// As add_shares above, for one row, whose place in the group is i; the shares themselves are kept if anyone reads them.
template <class T, Kind kind, bool all, bool keep = true> FOCALCAL_INLINE void add_shares(LongRow<T> &row, T best, Group &g, int i) {
  using L = Lanes<T>;
  const L most = L::all(best);
  Lanes<double> rest[2] = {}, squares[2] = {}, spread[2] = {};
  for (std::ptrdiff_t start = 0; start < row.padded; start += added_in_single * L::size) {
    L part{}, part_squares{}, part_spread{};
    const std::ptrdiff_t stop = start + added_in_single * L::size < row.padded ? start + added_in_single * L::size : row.padded;
    for (std::ptrdiff_t k = start; k < stop; k += L::size) {
      const L score = L::load(row.score + k), behind = all ? behind_of<kind>(score, most) : score - most;
      const L share = share_of<kind>(score, behind);
      if (keep) share.store(row.share + k);
      part += share;
      if (all) {
        part_squares += share * share;
        part_spread += spread_of<kind>(share, behind);
      }
    }
    add_to(rest, part);
    add_to(squares, part_squares);
    add_to(spread, part_spread);
  }
  g.rest[i] = total_of(rest);
  g.squares[i] = total_of(squares);
  g.spread[i] = total_of(spread);
}

template <class T, Kind kind>
FOCALCAL_INLINE void add_classes(ClassBins<T> &bins, LongRow<T> &row, const Group &g, int i, std::ptrdiff_t number) {
  using L = Lanes<T>;
  constexpr int size = L::size;
  const double weight = bins.weight(number), sum = g.first[i] + g.rest[i];
  const std::ptrdiff_t table = row.classes * bins.task.num_bins;
  auto add = [&](std::ptrdiff_t k, T p) {
    const std::int64_t place = bins.place(k, p);
    auto &entries = bins.task.entries;
    entries.push_back({place, 1.0});
    entries.push_back({table + place, weight});
    entries.push_back({2 * table + place, weight * double(p)});
  };
  const L whole = L::all(kind == Kind::logits ? T(sum) : T(1));
  for (std::ptrdiff_t k = 0; k < row.padded; k += size) {
    const L p = L::load(row.share + k) / whole;
    p.store(row.share + k);
    Lanes<double> wide[2] = {};
    add_to(wide, p);
    for (int half = 0; half < size / 8; ++half) {
      double *column = bins.task.columns.data() + k + 8 * half;
      (Lanes<double>::load(column) + wide[half] * weight).store(column);
    }
    for (std::uint32_t above = bits_of(p > bins.first_edge); above; above &= above - 1) {
      const std::ptrdiff_t place = k + __builtin_ctz(above);
      add(place, row.share[place]);
    }
  }
  const std::ptrdiff_t top = g.top[i];
  const T first = T(confidence_of<kind>(Lanes<double>::all(g.first[i]), Lanes<double>::all(sum))[0]);
  row.share[top] = first;
  bins.task.columns[top] += weight * double(first);
  if (first > bins.first_edge) add(top, first);
  bins.task.entries.push_back({3 * table + bins.place(g.label[i], row.share[g.label[i]]), weight});
}

template <class S, Kind kind, bool all>
void many_rows(const RowsInput &in, const RowsOutput &out, std::ptrdiff_t begin, std::ptrdiff_t end, ClassTask *task) {
  using T = typename Computed<S>::type;
  LongRow<T> row(in.scores.classes);
  Group g = {};
  ClassTask none;
  ClassBins<T> bins(in, task ? *task : none);
  const bool lean = !task && !wants_logarithms(out) && in.target < 0;
  for (std::ptrdiff_t start = begin; start < end; start += Group::size) {
    const int count = static_cast<int>(end - start < Group::size ? end - start : Group::size);
    for (int i = 0; i < count; ++i) {
      const T best = copy_row(static_cast<const S *>(in.scores.data) + (start + i) * in.scores.stride, T(in.mask_limit), row);
      const std::ptrdiff_t top = place_of(best, row), label = in.labels ? in.labels[start + i] : top;
      g.top[i] = top;
      g.label[i] = label;
      g.first[i] = first_of<kind>(best);
      g.best[i] = logarithmic<kind>(best);
      g.label_score[i] = logarithmic<kind>(row.score[label]);
      row.score[top] = -std::numeric_limits<T>::infinity();  // not one of the others
      if (out.rank) g.rank[i] = label == top ? 0 : rank_of(label, row);
      if (lean) add_shares<T, kind, false, false>(row, best, g, i);
      else add_shares<T, kind, all>(row, best, g, i);
      g.label_share[i] = row.share[label];
      if (in.target >= 0) g.target_share[i] = in.target == top ? g.first[i] : double(row.share[in.target]);
      if (task) add_classes<T, kind>(bins, row, g, i, start + i);
    }
    finish<T, kind>(in, out, g, start, count);
  }
}

// ------------------------------------------------------------------------------------------------ choice

template <class S, Kind kind> void rows_of_kind(const RowsInput &in, const RowsOutput &out, std::ptrdiff_t begin,
                                                std::ptrdiff_t end, ClassTask *task) {
  const bool few = in.scores.classes <= few_classes, all = out.brier || out.entropy;
  if (few && all) return few_rows<S, kind, true>(in, out, begin, end, task);
  if (few) return few_rows<S, kind, false>(in, out, begin, end, task);
  if (all) return many_rows<S, kind, true>(in, out, begin, end, task);
  return many_rows<S, kind, false>(in, out, begin, end, task);
}

template <class S> void rows_of(const RowsInput &in, const RowsOutput &out, std::ptrdiff_t begin, std::ptrdiff_t end,
                                ClassTask *task) {
  switch (in.kind) {
    case Kind::logits: return rows_of_kind<S, Kind::logits>(in, out, begin, end, task);
    case Kind::log_probs: return rows_of_kind<S, Kind::log_probs>(in, out, begin, end, task);
    case Kind::probs: return rows_of_kind<S, Kind::probs>(in, out, begin, end, task);
  }
}

inline void rows(const RowsInput &in, const RowsOutput &out, std::ptrdiff_t begin, std::ptrdiff_t end, ClassTask *task) {
  switch (in.scores.type) {
    case Type::float32: return rows_of<float>(in, out, begin, end, task);
    case Type::float64: return rows_of<double>(in, out, begin, end, task);
    // Probabilities in half precision come widened: kernels/rows.py sees to it.
    case Type::float16: return rows_of_kind<Half, Kind::logits>(in, out, begin, end, task);
    case Type::bfloat16: return rows_of_kind<Brain, Kind::logits>(in, out, begin, end, task);
  }
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
