// The module that Python imports: addresses and sizes in, numbers out. kernels/*.py checks types, shapes and layouts.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "dispatch.h"

NB_MODULE(_kernels, m) {
  m.doc() = "The compiled kernels of focalcal; focalcal.kernels calls them.";
  m.def("available", &focalcal::available);
  m.def("choose", &focalcal::choose);
  m.def("in_use", [] { return std::string(focalcal::kernels().name); });
  focalcal::bind_focal_loss(m);
  focalcal::bind_ranking(m);
  focalcal::bind_rows(m);
  focalcal::bind_temperature(m);
  focalcal::bind_focal_grid(m);
}
