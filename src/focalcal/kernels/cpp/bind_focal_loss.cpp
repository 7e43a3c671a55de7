// Python's way to the focal loss, and to the predicted class and its confidence.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "bindings.h"
#include "dispatch.h"
#include "tasks.h"

namespace focalcal {
namespace {

namespace nb = nanobind;
using Index = std::ptrdiff_t;
using Address = std::uintptr_t;

constexpr Index task_values = 1 << 17;

template <class T> T *pointer(Address address) { return reinterpret_cast<T *>(address); }

// The sum of the weights of all rows that count; labels that are no class are refused.
double total_weight(const FocalJob &job, Index rows) {
  const std::int64_t classes = job.classes;
  Index kept = 0;
  bool wrong = false;
  for (Index i = 0; i < rows; ++i) {
    const bool counts = job.labels[i] != job.ignored;
    kept += counts;
    wrong |= counts & (static_cast<std::uint64_t>(job.labels[i]) >= static_cast<std::uint64_t>(classes));
  }
  if (wrong) throw std::out_of_range("a label is no class");
  if (!job.class_weight) return static_cast<double>(kept);
  double total = 0;
  for (Index i = 0; i < rows; ++i)
    if (job.labels[i] != job.ignored) total += job.class_weight[job.labels[i]];
  return total;
}

// Memory of this size is fresh: taking it in large pages saves a fault for every 4 KB of it.
void prefer_large_pages(void *data, std::size_t bytes) {
#if defined(__linux__)
  constexpr Address large = Address(2) << 20;
  const Address begin = (reinterpret_cast<Address>(data) + large - 1) / large * large;
  const Address end = (reinterpret_cast<Address>(data) + bytes) / large * large;
  if (bytes >= (std::size_t(64) << 20) && begin < end) madvise(reinterpret_cast<void *>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

// The weighted sum or mean of the rows, and the first row whose label is masked or -1.
nb::tuple focal_loss(Address logits, int type, Index outer, Index classes, Index inner, Index outer_step,
                     Index class_step, Index inner_step, bool by_row, Address gradient, Index gradient_outer_step,
                     Index gradient_class_step, Index gradient_inner_step, Address labels, std::int64_t ignored,
                     double scale, bool mean, Address class_weight, Address row_weight, double gamma,
                     Address row_gamma, Address edges, Index num_edges, Address gammas, double mask_limit,
                     Address values, Address p, int threads) {
  FocalJob job{pointer<void>(logits), static_cast<Type>(type), outer, classes, inner,
               {outer_step, class_step, inner_step}, by_row, pointer<void>(gradient),
               {gradient_outer_step, gradient_class_step, gradient_inner_step}, pointer<std::int64_t>(labels), ignored,
               scale, pointer<double>(class_weight), pointer<double>(row_weight), gamma, pointer<double>(row_gamma),
               pointer<double>(edges), pointer<double>(gammas), num_edges, mask_limit, pointer<void>(values),
               pointer<double>(p)};
  const Index rows = outer * inner;
  const double total = total_weight(job, rows);
  if (mean) job.scale /= std::max(total, std::numeric_limits<double>::min());  // all ignored: 0
  if (gradient) {
    const std::size_t width = job.type == Type::float64 ? 8 : job.type == Type::float32 ? 4 : 2;
    prefer_large_pages(job.gradient, static_cast<std::size_t>(rows * classes) * width);
  }
  const RowTasks tasks(rows, classes, task_values);
  std::vector<FocalPart> parts(static_cast<std::size_t>(tasks.count), FocalPart{0, -1});
  run(tasks.count, threads, [&](Index i) { kernels().focal_loss(job, tasks.begin(i), tasks.end(i), parts[i]); });
  FocalPart all{0, -1};
  for (const FocalPart &part : parts) {
    all.sum += part.sum;
    if (all.masked < 0) all.masked = part.masked;
  }
  return nb::make_tuple(all.sum, all.masked);
}

}  // namespace

void bind_focal_loss(nb::module_ &m) {
  m.def("focal_loss", &focal_loss);
}

}  // namespace focalcal
