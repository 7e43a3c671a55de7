// The ECE of confidences that are in no order, with bins of equal width or of equal mass.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "dispatch.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// What is known of some rows together.
class RowTotals {
public:
  double confidence = 0;
  std::uint32_t count() const { return static_cast<std::uint32_t>(both_); }
  std::uint32_t right() const { return static_cast<std::uint32_t>(both_ >> 32); }

  void add(double confidences, std::uint32_t count, std::uint32_t right) {
    confidence += confidences;
    both_ += std::uint64_t(right) << 32 | count;
  }
  void add(const RowTotals &other) { add(other.confidence, other.count(), other.right()); }

private:
  std::uint64_t both_ = 0;  // the number of rows, and above it that of the correct ones: one addition for both
};

// Bins (lower, upper] between edges that are compared in the precision of the confidences.
inline double equal_width_gap(const float *confidence, const std::uint8_t *correct, std::ptrdiff_t rows, int num_bins) {
  std::vector<float> upper(static_cast<std::size_t>(num_bins));
  for (int bin = 0; bin < num_bins; ++bin) upper[bin] = static_cast<float>((bin + 1.0) / num_bins);
  std::vector<RowTotals> bins(upper.size());
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    const float value = confidence[row];
    int bin = std::min(static_cast<int>(value * num_bins), num_bins - 1);  // or a neighbour, by rounding
    while (bin > 0 && value <= upper[bin - 1]) --bin;
    while (bin < num_bins - 1 && value > upper[bin]) ++bin;
    bins[bin].add(value, 1, correct[row]);
  }
  double gaps = 0;
  for (const RowTotals &bin : bins) gaps += std::abs(bin.confidence - bin.right());
  return gaps / static_cast<double>(rows);
}

// A row as an integer that sorts by confidence: the bits of the confidence, then whether it is correct.
using Key = std::uint32_t;

inline float confidence_of(Key key) {
  const std::uint32_t bits = key >> 1;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// A question: the totals of the least confident rows up to a rank.
struct Wanted {
  std::uint32_t rank;
  double confidence, right;  // the answer
};

// All rows are equal: they share their correctness, wherever a rank falls among them.
inline void find_among_equal(const Key *keys, std::size_t count, const RowTotals &before, Wanted *wanted, Wanted *end) {
  std::uint32_t right = 0;
  for (std::size_t i = 0; i < count; ++i) right += keys[i] & 1;
  for (; wanted < end; ++wanted) {
    const double rows = wanted->rank - before.count();
    wanted->confidence = before.confidence + rows * confidence_of(keys[0]);
    wanted->right = before.right() + rows * right / static_cast<double>(count);
  }
}

inline void find_by_sorting(Key *keys, std::size_t count, RowTotals before, Wanted *wanted, Wanted *end) {
  std::sort(keys, keys + count);
  for (std::size_t start = 0, next; start < count && wanted < end; start = next) {
    RowTotals group;
    for (next = start; next < count && keys[next] >> 1 == keys[start] >> 1; ++next)
      group.add(confidence_of(keys[next]), 1, keys[next] & 1);
    Wanted *first = wanted;
    while (wanted < end && wanted->rank <= before.count() + group.count()) ++wanted;
    find_among_equal(keys + start, next - start, before, first, wanted);
    before.add(group);
  }
}

// A cell of confidences inside which ranks lie.
struct Cut {
  std::size_t cell;
  RowTotals before;
  Wanted *wanted, *end;
  std::size_t place, count;  // of its rows among those that are gathered
};

// Answers the ranks that lie between cells; returns the cells inside which the others lie.
inline std::vector<Cut> find_between(const std::vector<RowTotals> &cells, RowTotals before, Wanted *wanted, Wanted *end) {
  std::vector<Cut> cuts;
  std::size_t place = 0;
  for (std::size_t i = 0; i < cells.size() && wanted < end; ++i) {
    RowTotals reached = before;
    reached.add(cells[i]);
    Wanted *inside = wanted;
    while (wanted < end && wanted->rank < reached.count()) ++wanted;
    if (inside < wanted) {
      cuts.push_back({i, before, inside, wanted, place, cells[i].count()});
      place += cells[i].count();
    }
    for (; wanted < end && wanted->rank == reached.count(); ++wanted) {
      wanted->confidence = reached.confidence;
      wanted->right = reached.right();
    }
    before = reached;
  }
  return cuts;
}

// The rows of the cells that are cut, cell by cell.
template <class CellOf>
std::vector<Key> gather(const Key *keys, std::size_t count, std::size_t num_cells, const CellOf &cell_of,
                        const std::vector<Cut> &cuts) {
  std::vector<std::uint32_t> cut_of(num_cells, 0);  // from 1
  std::vector<std::size_t> next(1, 0);
  for (const Cut &cut : cuts) {
    cut_of[cut.cell] = static_cast<std::uint32_t>(next.size());
    next.push_back(cut.place);
  }
  const std::size_t size = cuts.back().place + cuts.back().count;
  std::vector<Key> mixed(size + 1), gathered(size);
  std::size_t held = 0;
  for (std::size_t i = 0; i < count; ++i) {  // without a branch, which would often be guessed wrong
    mixed[held] = keys[i];
    held += cut_of[cell_of(keys[i])] != 0;
  }
  for (std::size_t i = 0; i < held; ++i) gathered[next[cut_of[cell_of(mixed[i])]]++] = mixed[i];
  return gathered;
}

// Answers what is wanted of rows in any order, without sorting all of them: of ranks in increasing order, above that of
// `before` and not above that of the last row. The keys may change their order.
//
// Rows are counted in cells of confidence. Only where a rank lies inside a cell its rows are looked at again, in finer
// cells, until they are few or all equal.
inline void find(Key *keys, std::size_t count, const RowTotals &before, Wanted *wanted, Wanted *end) {
  constexpr std::size_t few = 64, most_cells = 1024;
  if (count <= few) return find_by_sorting(keys, count, before, wanted, end);
  Key least = keys[0], most = keys[0];
  for (std::size_t i = 0; i < count; ++i) {
    least = std::min(least, keys[i]);
    most = std::max(most, keys[i]);
  }
  if (least >> 1 == most >> 1) return find_among_equal(keys, count, before, wanted, end);
  std::vector<RowTotals> cells(std::min(most_cells, 2 * count));
  const double low = confidence_of(least), scale = static_cast<double>(cells.size() - 1) / (confidence_of(most) - low);
  const auto cell_of = [low, scale](Key key) { return static_cast<std::uint32_t>((confidence_of(key) - low) * scale); };
  for (std::size_t i = 0; i < count; ++i) cells[cell_of(keys[i])].add(confidence_of(keys[i]), 1, keys[i] & 1);
  const std::vector<Cut> cuts = find_between(cells, before, wanted, end);
  if (cuts.empty()) return;
  std::vector<Key> gathered = gather(keys, count, cells.size(), cell_of, cuts);
  for (const Cut &cut : cuts) find(&gathered[cut.place], cut.count, cut.before, cut.wanted, cut.end);
}

// Bins of equal mass: the row of rank i, from 0, is in bin floor(M i / N).
inline double equal_mass_gap(const float *confidence, const std::uint8_t *correct, std::ptrdiff_t rows, int num_bins,
                             std::vector<Key> &keys) {
  for (std::ptrdiff_t row = 0; row < rows; ++row) {
    std::uint32_t bits;
    std::memcpy(&bits, confidence + row, sizeof bits);
    keys[row] = bits << 1 | correct[row];
  }
  std::vector<Wanted> wanted(num_bins);
  for (int bin = 0; bin < num_bins; ++bin)
    wanted[bin] = {static_cast<std::uint32_t>(((bin + 1) * rows + num_bins - 1) / num_bins), 0, 0};
  find(keys.data(), rows, RowTotals{}, wanted.data(), wanted.data() + num_bins);
  double gaps = 0, confidences = 0, right = 0;
  for (const Wanted &cut : wanted) {
    gaps += std::abs((cut.confidence - confidences) - (cut.right - right));
    confidences = cut.confidence;
    right = cut.right;
  }
  return gaps / static_cast<double>(rows);
}

// The ECE of the confidences (points, rows) of some points.
inline void binned_gaps(const float *confidence, const std::uint8_t *correct, std::ptrdiff_t rows, std::ptrdiff_t begin,
                        std::ptrdiff_t end, int num_bins, bool equal_mass, double *out) {
  std::vector<Key> keys(equal_mass ? rows : 0);
  for (std::ptrdiff_t point = begin; point < end; ++point) {
    const float *some = confidence + point * rows;
    out[point] = equal_mass ? equal_mass_gap(some, correct, rows, num_bins, keys)
                            : equal_width_gap(some, correct, rows, num_bins);
  }
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
