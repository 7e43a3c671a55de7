// The kernels of one instruction set, and the choice among the sets that were compiled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace focalcal {

// What numbers are stored as; the same order as in compiled.py.
enum class Type : int { float32, float64, float16, bfloat16 };

// Rows of scores with their classes next to each other; rows are `stride` numbers apart.
struct Scores {
  const void *data;
  Type type;
  std::ptrdiff_t rows, classes, stride;
};

// The extremes of some numbers, and whether one of them is no number.
struct Extremes {
  double lowest, highest;
  bool has_nan;
};

// A call of the focal loss. Logits are (outer, classes, inner) with these steps in memory, and so is the gradient; a row
// or position is one of outer * inner, and labels, weights, gammas and values have one number for each.
struct FocalJob {
  const void *logits;
  Type type;
  std::ptrdiff_t outer, classes, inner, steps[3];
  bool by_row;  // classes are adjacent, and outer is 1
  void *gradient;  // or null
  std::ptrdiff_t gradient_steps[3];
  const std::int64_t *labels;
  std::int64_t ignored;
  double scale;                             // of all rows
  const double *class_weight, *row_weight;  // or null
  double gamma;                             // where the following are null:
  const double *row_gamma;
  const double *edges, *gammas;  // gammas[i] holds for p from edges[i - 1] up to edges[i]
  std::ptrdiff_t num_edges;
  double mask_limit;
  void *values;  // of the rows, in the type that is computed in, or null
  double *p;     // if not null, the probabilities of the labels are written there and nothing else is done
};

// The sum of some rows, and the first of them whose label is masked, or -1.
struct FocalPart {
  double sum;
  std::ptrdiff_t masked;
};

// What scores can be; the same order as in kernels/rows.py.
enum class Kind : int { logits, log_probs, probs };

// Up to this many classes, kernels of rows give each row a lane of its own.
constexpr std::ptrdiff_t few_classes = 128;

struct RowsInput {
  Scores scores;
  const std::int64_t *labels;  // null where there are none
  const double *weight;        // null where every row has the weight 1; only the sums of classes read it
  Kind kind;
  std::ptrdiff_t target;  // the class whose confidence is meant, -1 for the predicted one
  double mask_limit;      // scores at or below it are masked
};

// The columns that are asked for, null for the others.
struct RowsOutput {
  void *confidence;  // in the type that is computed in: double for float64 scores, float for all others
  std::uint8_t *correct;
  double *nll, *brier, *entropy, *energy;
  std::int64_t *rank, *top;
  double *top_confidence;  // of the predicted class, in double precision; NaN for rows without one
};

// What the rows of one task add to the bins of every class: sums of whole columns, and of the probabilities above the
// first bin, of which there are few. Few classes have a table; for many, a list is shorter.
struct ClassTask {
  // A term of the sums at a place: 0 for count, 1 for mass, 2 for mass times confidence, 3 for mass of the label.
  struct Entry {
    std::int64_t place;  // (sum * K + class) * num_bins + bin
    double value;
  };
  int num_bins = 1;
  std::vector<double> columns;  // (K,), padded
  std::vector<double> table;    // (4, K, num_bins)
  std::vector<Entry> entries;
};

// Confidences and correctness of rows, and the inner edges of bins (lower, upper], in the type of the confidences.
struct BinsInput {
  const void *confidence;
  Type type;
  const std::uint8_t *correct;
  const double *weight;  // null where every row has the weight 1
  const void *edges;
  int num_bins;
};

// Rows with labels, and weights unless they all weigh 1. Logits at or below the limit are masked.
struct LabelledRows {
  Scores scores;
  const std::int64_t *labels;
  const double *weight;
  double limit;
};

// Where the sums of a temperature step are wanted, and how many derivatives there; where `columns` is not null, the
// values of every row go there as well, (order + 1, rows).
constexpr int highest_order = 8;
struct TemperedPoint {
  double inverse_temperature;
  int order;
  double *columns;
};

// The sums of some rows at some points: for each point the NLL and the derivatives, times powers of the inverse
// temperature.
struct TemperedPart {
  std::vector<TemperedPoint> points;
  std::vector<double> sums;
  double mass;
  bool all_right;
};

// Rows prepared for a grid of the focal temperature family, in blocks of sixteen; focal_grid.h has the layout.
struct GridRows {
  const float *prepared;
  const std::uint8_t *correct;
  const double *weight;  // null where all are 1
  std::ptrdiff_t rows, classes;
};

// A point of a grid: gamma, and the ten coefficients of its polynomials; null where they would not be right.
struct GridPoint {
  float gamma;
  const float *linear, *square;
};

// Some temperatures, of which the line i has the points from first[i] to before first[i + 1].
struct GridLines {
  std::ptrdiff_t count;
  const float *inverse;
  const std::ptrdiff_t *first;
  const GridPoint *points;
};

// A column of a ranking, of any of the types that it may have; of stride 0 where all groups have the same.
struct Column {
  const char *data;
  std::ptrdiff_t stride;
  char type;

  double operator[](std::ptrdiff_t i) const {
    switch (type) {
      case 'f': return read<float>(i);
      case 'd': return read<double>(i);
      case 'B': return read<std::uint8_t>(i);
      default: return read<std::uint32_t>(i);
    }
  }
  template <class T> T read(std::ptrdiff_t i) const {
    T value;
    std::memcpy(&value, data + i * stride, sizeof value);
    return value;
  }
};
struct RankedGroups {
  Column value, mass, right;
  std::ptrdiff_t count;
};

// How many moments of a cell smooth ECE takes; core/smooth_ece.py says why.
constexpr int moments_of_cells = 10;

struct Kernels {
  const char *name;
  void (*extremes)(const Scores &, std::ptrdiff_t begin, std::ptrdiff_t end, Extremes &);
  void (*focal_loss)(const FocalJob &, std::ptrdiff_t begin, std::ptrdiff_t end, FocalPart &);
  // How far the sum of a row of probabilities, or of their logarithms' exponentials, is from 1 at most.
  double (*sum_error)(const Scores &, bool logarithms, std::ptrdiff_t begin, std::ptrdiff_t end);
  void (*rows)(const RowsInput &, const RowsOutput &, std::ptrdiff_t begin, std::ptrdiff_t end, ClassTask *);
  // Adds rows, mass and mass times confidence (2 * num_bins, 3), of the wrong and of the correct rows of each bin.
  void (*bins)(const BinsInput &, std::ptrdiff_t begin, std::ptrdiff_t end, double *sums);
  void (*tempered_sums)(const LabelledRows &, std::ptrdiff_t begin, std::ptrdiff_t end, TemperedPart &);
  void (*prepare_grid)(const Scores &, const std::int64_t *labels, std::ptrdiff_t begin, std::ptrdiff_t end,
                       float *prepared, std::uint8_t *correct);
  void (*grid_confidences)(const GridRows &, const GridLines &, std::ptrdiff_t begin, std::ptrdiff_t end, float *out,
                           std::ptrdiff_t step);
  void (*grid_sums)(const GridRows &, const GridLines &, std::ptrdiff_t begin, std::ptrdiff_t end, bool brier,
                    float loss_gamma, double *out);
  void (*binned_gaps)(const float *confidence, const std::uint8_t *correct, std::ptrdiff_t rows, std::ptrdiff_t begin,
                      std::ptrdiff_t end, int num_bins, bool equal_mass, double *out);
  double (*pair_sum)(const RankedGroups &, double right_share, double wrong_share, double width);
  void (*cell_moments)(const RankedGroups &, double total, std::ptrdiff_t cells, double *out);
};

// Those for this processor, unless `choose` has taken others.
const Kernels &kernels();
// The names of the sets that this processor can run, the fastest last.
std::vector<std::string> available();
// Use the set of that name; false if there is none.
bool choose(const std::string &name);

}  // namespace focalcal
