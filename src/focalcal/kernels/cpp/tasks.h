// Splitting rows into tasks, and running them while Python goes on.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <cstddef>

#include "threads.h"

namespace focalcal {

// Rows in tasks of about `values` numbers. The split depends on the shape alone, so that sums over tasks, added in
// order, do not depend on the number of threads. Sixteen rows are the least that kernels take together.
struct RowTasks {
  std::ptrdiff_t rows, step, count;

  RowTasks(std::ptrdiff_t rows, std::ptrdiff_t classes, std::ptrdiff_t values)
      : rows(rows), step(std::max<std::ptrdiff_t>(values / classes / 16, 1) * 16), count((rows + step - 1) / step) {}
  std::ptrdiff_t begin(std::ptrdiff_t task) const { return task * step; }
  std::ptrdiff_t end(std::ptrdiff_t task) const { return std::min(rows, (task + 1) * step); }
};

// Run tasks without the GIL; Ctrl-C is noticed between tasks and raised here.
template <class Task> void run(std::ptrdiff_t count, int threads, const Task &task) {
  bool finished;
  {
    nanobind::gil_scoped_release released;
    finished = parallel_for(count, threads, task, [] {
      nanobind::gil_scoped_acquire held;
      return PyErr_CheckSignals() == 0;
    });
  }
  if (!finished) throw nanobind::python_error();
}

}  // namespace focalcal
