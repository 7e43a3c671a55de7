// Sums over the groups of a ranking that take an exponential, or a dozen powers, of each group.
#pragma once

#include <algorithm>
#include <cmath>

#include "dispatch.h"
#include "lanes.h"

namespace focalcal {
namespace FOCALCAL_ISA {

// What lies below a group decays by the distance to it, so one running sum serves all pairs and nothing can overflow.
inline double pair_sum(const RankedGroups &groups, double right_share, double wrong_share, double width) {
  constexpr int size = Lanes<double>::size;
  double below = 0, total = 0, last = groups.count ? groups.value[0] : 0;
  for (std::ptrdiff_t first = 0; first < groups.count; first += size) {
    const int here = static_cast<int>(std::min<std::ptrdiff_t>(size, groups.count - first));
    double distance[size] = {}, share[size], decay[size];
    for (int i = 0; i < here; ++i) {
      const double r = groups.value[first + i], correct = groups.right[first + i];
      share[i] = correct * (1 - r) * right_share - (groups.mass[first + i] - correct) * r * wrong_share;
      distance[i] = (last - r) / width;
      last = r;
    }
    exp(Lanes<double>::load(distance)).store(decay);
    for (int i = 0; i < here; ++i) {
      below *= decay[i];
      total += share[i] * (share[i] + 2 * below);
      below += share[i];
    }
  }
  return total;
}

// Sums of r u^m in each of `cells` cells of [0, 1] for m below `moments_of_cells`, where r is the residual of a group over the
// total mass and u in [-1, 1] its offset from the centre of the cell; added to `out` (moments, cells). Groups rise, so
// those of a cell follow each other: their sums stay in registers, a lane for every eighth of them.
inline void cell_moments(const RankedGroups &groups, double total, std::ptrdiff_t cells, double *out) {
  constexpr int size = Lanes<double>::size, moments = moments_of_cells;
  Lanes<double> sums[moments] = {};
  const auto cell_of = [&](std::ptrdiff_t i) {
    return std::min(static_cast<std::ptrdiff_t>(groups.value[i] * double(cells)), cells - 1);
  };
  for (std::ptrdiff_t first = 0; first < groups.count;) {
    const std::ptrdiff_t cell = cell_of(first);
    for (auto &sum : sums) sum = {};
    std::ptrdiff_t i = first;
    for (bool inside = true; inside && i < groups.count;) {
      double offset[size] = {}, residual[size] = {};
      for (int lane = 0; lane < size; ++lane, ++i) {
        inside = i < groups.count && cell_of(i) == cell;
        if (!inside) break;
        const double f = groups.value[i];
        offset[lane] = 2 * (f * double(cells) - double(cell)) - 1;
        residual[lane] = (f * groups.mass[i] - groups.right[i]) / total;
      }
      const Lanes<double> u = Lanes<double>::load(offset);
      Lanes<double> term = Lanes<double>::load(residual);
#pragma GCC unroll 16
      for (int m = 0; m < moments; ++m) {
        sums[m] += term;
        term = term * u;
      }
    }
    for (int m = 0; m < moments; ++m) out[m * cells + cell] += sum_of(sums[m]);
    first = i;
  }
}

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
