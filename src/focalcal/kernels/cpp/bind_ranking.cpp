// Packed confidences in order, and groups of equal ones. kernels/ranking.py says what a packed row is.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "dispatch.h"
#include "tasks.h"

namespace focalcal {
namespace {

// The bits of a digit: its counters and the lines that they write to stay in the first cache.
constexpr int digit_bits = 9, digits = 1 << digit_bits;
// Keys that a thread takes: moving them is bound by memory, and a second thread gains little.
constexpr std::ptrdiff_t keys_per_thread = 1 << 21;

template <class K> int digit_of(K key, int shift) { return static_cast<int>((key >> shift) & (digits - 1)); }

// The bits in which keys differ.
template <class K> K differing_bits(const K *keys, std::ptrdiff_t rows) {
  K any = 0, all = static_cast<K>(-1);
  for (std::ptrdiff_t i = 0; i < rows; ++i) any |= keys[i], all &= keys[i];
  return any & ~all;
}

// How many keys below each digit there are among `count` keys from `from`.
template <class K> void count_digits(const K *from, std::ptrdiff_t count, int shift, std::ptrdiff_t *counts) {
  std::fill(counts, counts + digits, 0);
  for (std::ptrdiff_t i = 0; i < count; ++i) ++counts[digit_of(from[i], shift)];
}

template <class K> void move_keys(const K *from, std::ptrdiff_t count, int shift, std::ptrdiff_t *places, K *to) {
  for (std::ptrdiff_t i = 0; i < count; ++i) to[places[digit_of(from[i], shift)]++] = from[i];
}

// Sorts by one digit after the other, the lowest first, each thread a part of the keys. The result is the same for any
// number of threads, because equal keys cannot be told apart.
template <class K> void sort(K *keys, K *scratch, std::ptrdiff_t rows, int threads) {
  const std::ptrdiff_t tasks = std::clamp<std::ptrdiff_t>(rows / keys_per_thread, 1, threads);
  auto begin = [&](std::ptrdiff_t task) { return rows * task / tasks; };
  const K differing = differing_bits(keys, rows);
  std::vector<std::ptrdiff_t> counts(digits * tasks);
  K *from = keys, *to = scratch;
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(K)); shift += digit_bits) {
    if (!(differing >> shift & (digits - 1))) continue;
    run(tasks, threads, [&](std::ptrdiff_t t) { count_digits(from + begin(t), begin(t + 1) - begin(t), shift, &counts[digits * t]); });
    std::ptrdiff_t place = 0;
    for (int digit = 0; digit < digits; ++digit)
      for (std::ptrdiff_t task = 0; task < tasks; ++task) place += std::exchange(counts[digits * task + digit], place);
    run(tasks, threads, [&](std::ptrdiff_t t) { move_keys(from + begin(t), begin(t + 1) - begin(t), shift, &counts[digits * t], to); });
    std::swap(from, to);
  }
  if (from != keys) std::memcpy(keys, from, rows * sizeof(K));
}

template <class K> std::ptrdiff_t sort_and_count(std::uintptr_t data, std::uintptr_t scratch, std::ptrdiff_t rows, int threads) {
  K *keys = reinterpret_cast<K *>(data);
  sort(keys, reinterpret_cast<K *>(scratch), rows, threads);
  std::ptrdiff_t different = rows > 0;
  for (std::ptrdiff_t i = 1; i < rows; ++i) different += keys[i] >> 1 != keys[i - 1] >> 1;
  return different;
}

// Sorts packed rows of 4 or 8 bytes, with as much scratch memory beside them; gives the number of different confidences.
std::ptrdiff_t sort_keys(std::uintptr_t data, int bytes, std::uintptr_t scratch, std::ptrdiff_t rows, int threads) {
  return bytes == 4 ? sort_and_count<std::uint32_t>(data, scratch, rows, threads)
                    : sort_and_count<std::uint64_t>(data, scratch, rows, threads);
}

// Groups of equal confidence in sorted keys: the confidence of each, its rows and its correct rows.
template <class K>
void group_keys(std::uintptr_t data, std::ptrdiff_t rows, std::uintptr_t values, std::uintptr_t counts, std::uintptr_t rights) {
  const K *keys = reinterpret_cast<const K *>(data);
  K *value = reinterpret_cast<K *>(values);  // the bits of a confidence, which has as many
  auto *count = reinterpret_cast<std::uint32_t *>(counts), *right = reinterpret_cast<std::uint32_t *>(rights);
  for (std::ptrdiff_t i = 0; i < rows;) {
    const std::ptrdiff_t start = i;
    *value = keys[i] >> 1;
    *right = 0;
    for (; i < rows && keys[i] >> 1 == *value; ++i) *right += static_cast<std::uint32_t>(keys[i] & 1);
    *count = static_cast<std::uint32_t>(i - start);
    ++value, ++count, ++right;
  }
}

// The same where all confidences are different: the confidence of each row, and whether it is correct.
template <class K> void unpack_keys(std::uintptr_t data, std::ptrdiff_t rows, std::uintptr_t values, std::uintptr_t rights) {
  const K *keys = reinterpret_cast<const K *>(data);
  K *value = reinterpret_cast<K *>(values);
  auto *right = reinterpret_cast<std::uint8_t *>(rights);
  for (std::ptrdiff_t i = 0; i < rows; ++i) {
    value[i] = keys[i] >> 1;
    right[i] = static_cast<std::uint8_t>(keys[i] & 1);
  }
}

// Address, distance and type of a column.
using Layout = std::tuple<std::uintptr_t, std::ptrdiff_t, char>;
Column column_of(const Layout &layout) {
  return {reinterpret_cast<const char *>(std::get<0>(layout)), std::get<1>(layout), std::get<2>(layout)};
}

// The sum over all pairs of groups of a_i a_j exp(-|r_i - r_j| / width), where r rises and a is `right_share` of the
// correct and minus `wrong_share` of the wrong rows, times their distance from the truth.
double pair_sum(Layout values, Layout masses, Layout rights, std::ptrdiff_t groups, double right_share, double wrong_share, double width) {
  nanobind::gil_scoped_release released;
  return kernels().pair_sum({column_of(values), column_of(masses), column_of(rights), groups}, right_share, wrong_share, width);
}

// The largest distance between the running sums of confidence and of correctness.
double largest_drift(Layout values, Layout masses, Layout rights, std::ptrdiff_t groups) {
  const Column value = column_of(values), mass = column_of(masses), right = column_of(rights);
  nanobind::gil_scoped_release released;
  double drift = 0, largest = 0;
  for (std::ptrdiff_t i = 0; i < groups; ++i) {
    drift += value[i] * mass[i] - right[i];
    largest = std::max(largest, std::abs(drift));
  }
  return largest;
}

// Over all groups, the correct mass times the wrong mass below it, of which the group's own counts half.
double right_above_wrong(Layout masses, Layout rights, std::ptrdiff_t groups) {
  const Column mass = column_of(masses), right = column_of(rights);
  nanobind::gil_scoped_release released;
  double wrong_below = 0, total = 0;
  for (std::ptrdiff_t i = 0; i < groups; ++i) {
    const double correct = right[i], wrong = mass[i] - correct;
    total += correct * (wrong_below + wrong / 2);
    wrong_below += wrong;
  }
  return total;
}

// The sum of 1 / k over k = before + 1 .. before + count.
double harmonic_step(double before, double count) {
  constexpr double few = 256;  // beyond, the difference of two asymptotic series has as many digits
  double sum = 0;
  for (; count > 0 && (count <= few || before < few); --count) sum += 1 / ++before;
  if (count <= 0) return sum;
  const auto series = [](double n) {  // H_n - log n, without Euler's constant
    const double inverse = 1 / n, square = inverse * inverse;
    return inverse / 2 - square * (1 / 12.0 - square * (1 / 120.0 - square / 252));
  };
  return sum + std::log1p(count / before) + (series(before + count) - series(before));
}

// The area under the risk-coverage curve times the total mass; selective_prediction.py has the formula of a group.
double risk_area(Layout masses, Layout rights, std::ptrdiff_t groups, bool counts_rows) {
  const Column mass = column_of(masses), right = column_of(rights);
  nanobind::gil_scoped_release released;
  double area = 0, surer = 0, missed = 0;
  for (std::ptrdiff_t i = groups - 1; i >= 0; --i) {
    const double here = mass[i], wrong = here - right[i];
    const double step = !counts_rows ? (surer > 0 ? std::log1p(here / surer) : 0) : here == 1 ? 1 / (surer + 1) : harmonic_step(surer, here);
    area += (missed - wrong / here * surer) * step + wrong;
    surer += here;
    missed += wrong;
  }
  return area;
}

// Moments of the residuals in each of `cells` cells of [0, 1], written to `out` (moments_of_cells, cells).
void cell_moments(Layout values, Layout masses, Layout rights, std::ptrdiff_t groups, double total, std::ptrdiff_t cells, int moments, std::uintptr_t out) {
  if (moments != moments_of_cells) throw std::invalid_argument("the kernel is compiled for another number of moments");
  nanobind::gil_scoped_release released;
  kernels().cell_moments({column_of(values), column_of(masses), column_of(rights), groups}, total, cells, reinterpret_cast<double *>(out));
}

}  // namespace

void bind_ranking(nanobind::module_ &m) {
  m.def("sort_keys", &sort_keys);
  m.def("group_keys32", &group_keys<std::uint32_t>);
  m.def("group_keys64", &group_keys<std::uint64_t>);
  m.def("unpack_keys32", &unpack_keys<std::uint32_t>);
  m.def("unpack_keys64", &unpack_keys<std::uint64_t>);
  m.def("pair_sum", &pair_sum);
  m.def("largest_drift", &largest_drift);
  m.def("right_above_wrong", &right_above_wrong);
  m.def("risk_area", &risk_area);
  m.def("cell_moments", &cell_moments);
}

}  // namespace focalcal
