// All kernels for one instruction set: compiled once for each, with FOCALCAL_ISA as its name.
#include "bins.h"
#include "checks.h"
#include "focal_loss.h"
#include "rows.h"
#include "temperature.h"
#include "binned_gaps.h"
#include "focal_grid.h"
#include "ranked_sums.h"

#define FOCALCAL_TEXT(name) #name
#define FOCALCAL_NAME(name) FOCALCAL_TEXT(name)

namespace focalcal {
namespace FOCALCAL_ISA {

extern const Kernels table;
const Kernels table{
    FOCALCAL_NAME(FOCALCAL_ISA),
    extremes,
    focal_loss,
    sum_error,
    rows,
    bins,
    tempered_sums,
    prepare_grid,
    grid_confidences,
    grid_sums,
    binned_gaps,
    pair_sum,
    cell_moments,
};

}  // namespace FOCALCAL_ISA
}  // namespace focalcal
