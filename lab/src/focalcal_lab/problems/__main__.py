"""`python -m focalcal_lab.problems FOLDER`: solve both problems, print their tables, draw their figures."""

from __future__ import annotations

import sys

import torch

from focalcal_lab.problems import linear_problem, one_dimensional_problem, save_drawings
from focalcal_lab.problems.tables import linear_table, mistakes_table, one_dimensional_table


def main(arguments: list[str]) -> int:
    """Write to the folder named by the only argument; 2 if there is another number of them."""
    if len(arguments) != 1:
        print("usage: python -m focalcal_lab.problems FOLDER", file=sys.stderr)
        return 2
    torch.set_num_threads(1)  # the networks are so small that a second thread gains nothing
    linear = linear_problem()
    print(f"Linear problem, Bayes error {linear.bayes_error:.1%}, angle between the weights {linear.angle():.2f}°\n")
    print(linear_table(linear))
    print(mistakes_table())
    line = one_dimensional_problem()
    print(f"One-dimensional problem, Bayes error {line.bayes_error:.2%}\n")
    print(one_dimensional_table(line))
    for path in save_drawings(arguments[0], linear, line):
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
