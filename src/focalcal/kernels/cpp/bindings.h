// What each family of kernels adds to the module; bind_*.cpp has one each.
#pragma once

#include <nanobind/nanobind.h>

namespace focalcal {

void bind_focal_loss(nanobind::module_ &m);
void bind_ranking(nanobind::module_ &m);
void bind_rows(nanobind::module_ &m);
void bind_temperature(nanobind::module_ &m);
void bind_focal_grid(nanobind::module_ &m);

}  // namespace focalcal
