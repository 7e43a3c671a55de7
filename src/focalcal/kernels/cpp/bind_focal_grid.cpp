// Python's way to the kernels of the focal temperature family.
#include <algorithm>
#include <vector>

#include "bindings.h"
#include "dispatch.h"
#include "tasks.h"

namespace focalcal {
namespace {

namespace nb = nanobind;

// Numbers that a task is worth starting for, about a millisecond's work.
constexpr std::ptrdiff_t task_values = 1 << 19;

template <class T> T *at(std::uintptr_t address) { return reinterpret_cast<T *>(address); }

void prepare_grid(std::uintptr_t data, int type, std::ptrdiff_t rows, std::ptrdiff_t classes, std::ptrdiff_t stride,
                  std::uintptr_t labels, std::uintptr_t prepared, std::uintptr_t correct, int threads) {
  const Scores scores{at<const void>(data), static_cast<Type>(type), rows, classes, stride};
  const RowTasks tasks(rows, classes, task_values / 8);
  run(tasks.count, threads, [&](std::ptrdiff_t i) {
    kernels().prepare_grid(scores, at<const std::int64_t>(labels), tasks.begin(i), tasks.end(i), at<float>(prepared),
                           at<std::uint8_t>(correct));
  });
}

// Lines as Python passes them: 1 / T and the number of gammas of each line; then of all gammas, one after the other,
// the ten coefficients of both polynomials, all zero where they would not be right.
struct PassedLines {
  std::vector<std::ptrdiff_t> first{0};
  std::vector<GridPoint> points;
  GridLines lines;

  PassedLines(std::ptrdiff_t count, std::uintptr_t inverse, std::uintptr_t sizes, std::uintptr_t gammas,
              std::uintptr_t linear, std::uintptr_t square) {
    for (std::ptrdiff_t i = 0; i < count; ++i) first.push_back(first.back() + at<const std::int64_t>(sizes)[i]);
    for (std::ptrdiff_t i = 0; i < first.back(); ++i) {
      const float *coefficients = at<const float>(linear) + 10 * i;
      const bool right = coefficients[0] != 0;
      points.push_back({at<const float>(gammas)[i], right ? coefficients : nullptr, at<const float>(square) + 10 * i});
    }
    lines = {count, at<const float>(inverse), first.data(), points.data()};
  }
  PassedLines(const PassedLines &) = delete;
};

void grid_confidences(std::uintptr_t prepared, std::ptrdiff_t rows, std::ptrdiff_t classes, std::ptrdiff_t count,
                      std::uintptr_t inverse, std::uintptr_t sizes, std::uintptr_t gammas, std::uintptr_t linear,
                      std::uintptr_t square, std::uintptr_t out, std::ptrdiff_t step, int threads) {
  const PassedLines passed(count, inverse, sizes, gammas, linear, square);
  const GridRows grid{at<const float>(prepared), nullptr, nullptr, rows, classes};
  const RowTasks tasks(rows, classes * count, task_values);
  run(tasks.count, threads, [&](std::ptrdiff_t i) {
    kernels().grid_confidences(grid, passed.lines, tasks.begin(i), tasks.end(i), at<float>(out), step);
  });
}

void grid_sums(std::uintptr_t prepared, std::ptrdiff_t rows, std::ptrdiff_t classes, std::ptrdiff_t count,
               std::uintptr_t inverse, std::uintptr_t sizes, std::uintptr_t gammas, std::uintptr_t linear,
               std::uintptr_t square, std::uintptr_t correct, std::uintptr_t weight, bool brier, float loss_gamma,
               std::uintptr_t out, int threads) {
  const PassedLines passed(count, inverse, sizes, gammas, linear, square);
  const GridRows grid{at<const float>(prepared), at<const std::uint8_t>(correct), at<const double>(weight), rows, classes};
  const RowTasks tasks(rows, classes * count, task_values);
  const std::size_t points = passed.points.size();
  std::vector<double> parts(tasks.count * points);
  run(tasks.count, threads, [&](std::ptrdiff_t i) {
    kernels().grid_sums(grid, passed.lines, tasks.begin(i), tasks.end(i), brier, loss_gamma, &parts[i * points]);
  });
  for (std::size_t i = 0; i < parts.size(); ++i) at<double>(out)[i % points] += parts[i];
}

void binned_gaps(std::uintptr_t confidence, std::uintptr_t correct, std::ptrdiff_t points, std::ptrdiff_t rows,
                 int num_bins, bool equal_mass, std::uintptr_t out, int threads) {
  const std::ptrdiff_t together = std::max<std::ptrdiff_t>(task_values / 16 / rows, 1);
  run((points + together - 1) / together, threads, [&](std::ptrdiff_t i) {
    kernels().binned_gaps(at<const float>(confidence), at<const std::uint8_t>(correct), rows, i * together,
                          std::min(points, (i + 1) * together), num_bins, equal_mass, at<double>(out));
  });
}

}  // namespace

void bind_focal_grid(nb::module_ &m) {
  m.def("prepare_grid", &prepare_grid);
  m.def("grid_confidences", &grid_confidences);
  m.def("grid_sums", &grid_sums);
  m.def("binned_gaps", &binned_gaps);
}

}  // namespace focalcal
