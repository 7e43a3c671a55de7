// Python's way to the sums of a temperature step.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings.h"
#include "dispatch.h"
#include "tasks.h"

namespace focalcal {
namespace {

namespace nb = nanobind;

LabelledRows labelled_rows(std::uintptr_t data, int type, std::ptrdiff_t rows, std::ptrdiff_t classes,
                           std::ptrdiff_t stride, std::uintptr_t labels, std::uintptr_t weight, double limit) {
  return {{reinterpret_cast<const void *>(data), static_cast<Type>(type), rows, classes, stride},
          reinterpret_cast<const std::int64_t *>(labels),
          reinterpret_cast<const double *>(weight),
          limit};
}

// The sums of all rows at all points, times powers of the inverse temperatures.
TemperedPart all_sums(const LabelledRows &given, const std::vector<TemperedPoint> &points, int threads) {
  TemperedPart all{points, {}, 0, true};
  for (const TemperedPoint &point : points) {
    if (point.order < 0 || point.order > highest_order) throw nb::value_error("too many derivatives");
    all.sums.resize(all.sums.size() + point.order + 1);
  }
  const RowTasks tasks(given.scores.rows, given.scores.classes, 1 << 15);
  std::vector<TemperedPart> parts(tasks.count, TemperedPart{points, {}, 0, true});
  run(tasks.count, threads,
      [&](std::ptrdiff_t i) { kernels().tempered_sums(given, tasks.begin(i), tasks.end(i), parts[i]); });
  for (const TemperedPart &part : parts) {
    for (std::size_t j = 0; j < all.sums.size(); ++j) all.sums[j] += part.sums[j];
    all.mass += part.mass;
    all.all_right = all.all_right && part.all_right;
  }
  return all;
}

// The mass of all rows, whether every label has the largest logit, and for each point (inverse temperature, order) the
// NLL and so many derivatives of it, one after the other.
nb::tuple tempered_sums(std::uintptr_t data, int type, std::ptrdiff_t rows, std::ptrdiff_t classes,
                        std::ptrdiff_t stride, std::uintptr_t labels, std::uintptr_t weight, double limit,
                        const std::vector<std::pair<double, int>> &given, int threads) {
  std::vector<TemperedPoint> points;
  for (const auto &[inverse_temperature, order] : given) points.push_back({inverse_temperature, order, nullptr});
  TemperedPart all =
      all_sums(labelled_rows(data, type, rows, classes, stride, labels, weight, limit), points, threads);
  std::size_t place = 0;
  for (const TemperedPoint &point : points) {
    double power = 1;
    for (int j = 0; j <= point.order; ++j, ++place, power *= point.inverse_temperature) all.sums[place] /= power;
  }
  return nb::make_tuple(all.mass, all.all_right, all.sums);
}

// The columns of every row at each inverse temperature, written to `columns` (points, order + 1, rows).
void tempered_columns(std::uintptr_t data, int type, std::ptrdiff_t rows, std::ptrdiff_t classes,
                      std::ptrdiff_t stride, std::uintptr_t labels, double limit,
                      const std::vector<double> &inverse_temperatures, int order, std::uintptr_t columns, int threads) {
  std::vector<TemperedPoint> points;
  double *to = reinterpret_cast<double *>(columns);
  for (const double inverse_temperature : inverse_temperatures) {
    points.push_back({inverse_temperature, order, to});
    to += (order + 1) * rows;
  }
  all_sums(labelled_rows(data, type, rows, classes, stride, labels, 0, limit), points, threads);
}

}  // namespace

void bind_temperature(nb::module_ &m) {
  m.def("tempered_sums", &tempered_sums);
  m.def("tempered_columns", &tempered_columns);
}

}  // namespace focalcal
