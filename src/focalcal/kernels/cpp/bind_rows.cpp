// Python's way to the kernels that read rows of scores.
#include <vector>

#include "bindings.h"
#include "dispatch.h"
#include "tasks.h"

namespace focalcal {
namespace {

namespace nb = nanobind;

// Of all scores: the lowest, the highest, and whether one is no number.
nb::tuple extremes(std::uintptr_t data, int type, std::ptrdiff_t rows, std::ptrdiff_t classes, std::ptrdiff_t stride,
                   int threads) {
  const Scores scores{reinterpret_cast<const void *>(data), static_cast<Type>(type), rows, classes, stride};
  const RowTasks tasks(rows, classes, 1 << 17);
  std::vector<Extremes> parts(tasks.count, Extremes{0, 0, false});
  run(tasks.count, threads, [&](std::ptrdiff_t i) { kernels().extremes(scores, tasks.begin(i), tasks.end(i), parts[i]); });
  Extremes all = parts.at(0);
  for (const Extremes &part : parts) {
    all.lowest = part.lowest < all.lowest ? part.lowest : all.lowest;
    all.highest = part.highest > all.highest ? part.highest : all.highest;
    all.has_nan = all.has_nan || part.has_nan;
  }
  return nb::make_tuple(all.lowest, all.highest, all.has_nan);
}

// How far the sum of a row is from 1 at most; NaN where a score is none.
double sum_error(std::uintptr_t data, int type, std::ptrdiff_t rows, std::ptrdiff_t classes, std::ptrdiff_t stride,
                 bool logarithms, int threads) {
  const Scores scores{reinterpret_cast<const void *>(data), static_cast<Type>(type), rows, classes, stride};
  const RowTasks tasks(rows, classes, 1 << 17);
  std::vector<double> parts(tasks.count, 0.0);
  run(tasks.count, threads, [&](std::ptrdiff_t i) {
    parts[i] = kernels().sum_error(scores, logarithms, tasks.begin(i), tasks.end(i));
  });
  double largest = 0;
  for (double part : parts)
    if (largest == largest && !(part <= largest)) largest = part;
  return largest;
}

// An address as a pointer; 0 is null.
template <class T> T *at(std::uintptr_t address) { return reinterpret_cast<T *>(address); }

// Values that a task has: enough that starting it costs nothing, few enough that it stays in the cache.
constexpr std::ptrdiff_t task_values = 1 << 16;
// Tasks whose class sums are held at once.
constexpr std::ptrdiff_t held_tasks = 16;

// Adds what some tasks found to the sums (4, K, bins) of count, mass, confidence and correctness, and to the sums
// (K,) of whole columns, in the order of the tasks.
void tally(const std::vector<ClassTask> &tasks, std::ptrdiff_t classes, double *sums, double *columns) {
  for (const ClassTask &task : tasks) {
    for (std::ptrdiff_t k = 0; k < classes; ++k) columns[k] += task.columns[k];
    for (std::size_t place = 0; place < task.table.size(); ++place) sums[place] += task.table[place];
    for (const ClassTask::Entry &entry : task.entries) sums[entry.place] += entry.value;
  }
}

// The columns of rows, each written to its address unless that is 0; with `num_bins` the sums of every class, too.
void rows(std::uintptr_t data, int type, std::ptrdiff_t num_rows, std::ptrdiff_t classes, std::ptrdiff_t stride,
          std::uintptr_t labels, std::uintptr_t weight, int kind, std::ptrdiff_t target, double mask_limit,
          std::uintptr_t confidence, std::uintptr_t correct, std::uintptr_t nll, std::uintptr_t brier,
          std::uintptr_t entropy, std::uintptr_t energy, std::uintptr_t rank, std::uintptr_t top,
          std::uintptr_t top_confidence, int num_bins,
          std::uintptr_t class_sums, std::uintptr_t class_columns, int threads) {
  const Scores scores{at<void>(data), static_cast<Type>(type), num_rows, classes, stride};
  const RowsInput in{scores, at<std::int64_t>(labels), at<double>(weight), static_cast<Kind>(kind), target, mask_limit};
  const RowsOutput out{at<void>(confidence), at<std::uint8_t>(correct), at<double>(nll), at<double>(brier),
                       at<double>(entropy), at<double>(energy), at<std::int64_t>(rank), at<std::int64_t>(top),
                       at<double>(top_confidence)};
  const RowTasks tasks(num_rows, classes, task_values);
  if (!num_bins)
    return run(tasks.count, threads, [&](std::ptrdiff_t i) { kernels().rows(in, out, tasks.begin(i), tasks.end(i), nullptr); });
  for (std::ptrdiff_t first = 0; first < tasks.count; first += held_tasks) {
    const std::ptrdiff_t count = std::min(held_tasks, tasks.count - first);
    std::vector<ClassTask> found(count);
    run(count, threads, [&](std::ptrdiff_t i) {
      found[i].num_bins = num_bins;
      found[i].columns.assign((classes + 15) / 16 * 16, 0.0);
      if (classes <= few_classes) found[i].table.assign(4 * classes * num_bins, 0.0);
      kernels().rows(in, out, tasks.begin(first + i), tasks.end(first + i), &found[i]);
    });
    tally(found, classes, at<double>(class_sums), at<double>(class_columns));
  }
}

// Adds rows, mass and confidence of the wrong and of the correct rows of each bin to `sums` (2 * num_bins, 3).
void bins(std::uintptr_t confidence, int type, std::ptrdiff_t num_rows, std::uintptr_t correct, std::uintptr_t weight,
          std::uintptr_t edges, int num_bins, std::uintptr_t sums, int threads) {
  const BinsInput in{at<void>(confidence), static_cast<Type>(type), at<std::uint8_t>(correct), at<double>(weight),
                     at<void>(edges), num_bins};
  const RowTasks tasks(num_rows, 1, 1 << 15);
  const std::size_t size = std::size_t(6) * num_bins;
  std::vector<double> parts(size * tasks.count, 0.0);
  run(tasks.count, threads, [&](std::ptrdiff_t i) { kernels().bins(in, tasks.begin(i), tasks.end(i), parts.data() + size * i); });
  for (std::ptrdiff_t i = 0; i < tasks.count; ++i)
    for (std::size_t place = 0; place < size; ++place) at<double>(sums)[place] += parts[size * i + place];
}

}  // namespace

void bind_rows(nb::module_ &m) {
  m.def("extremes", &extremes);
  m.def("sum_error", &sum_error);
  m.def("rows", &rows);
  m.def("bins", &bins);
}

}  // namespace focalcal
