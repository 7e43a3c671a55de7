"""Rows in order of confidence: packing, groups, cuts, sweeps and blocks, against plain loops."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

from focalcal import metrics as m
from focalcal.core import ranking
from focalcal.core.ranking import Ranking, dense_rank, pack, unpack

few = settings(max_examples=40)
PRECISIONS = [np.float32, np.float64]
CORNERS = [0.0, -0.0, 1.0, 0.5, 1e-320, 5e-324, 1.4e-45, 1e-39, 1 - 2**-24, 1 - 2**-53, 1 / 3]


@contextmanager
def at_most(seconds: float):
    """Stops what takes more processor time than this; a busy machine does not matter."""

    def stop(*_):
        raise TimeoutError(f"took more than {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@st.composite
def rows(draw, most=40):
    """Confidence and correctness of some rows, in either precision: all different, tied, or some at 0 and 1."""
    dtype = draw(st.sampled_from(PRECISIONS))
    n = draw(st.integers(1, most))
    value = draw(
        st.sampled_from(
            [
                st.floats(0, 1, width=32),
                st.integers(0, 4).map(lambda quarters: quarters / 4),
                st.integers(0, 20).map(lambda twentieths: twentieths / 20),
            ]
        )
    )
    confidence = np.array(draw(st.lists(value, min_size=n, max_size=n)), dtype=dtype)
    correct = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    return confidence, correct


def weights(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 5, n)


# --- packing


@pytest.mark.parametrize("dtype", PRECISIONS)
@given(pairs=st.lists(st.tuples(st.one_of(st.sampled_from(CORNERS), st.floats(0, 1)), st.booleans()), min_size=1))
@example(pairs=[(value, right) for value in CORNERS for right in (True, False)])
def test_packing_and_unpacking_gives_the_bits_back(dtype, pairs):
    confidence, correct = np.array([c for c, _ in pairs], dtype=dtype), np.array([a for _, a in pairs])
    value, right = unpack(pack(confidence, correct))
    assert value.dtype == dtype
    assert np.array_equal(value.view(np.uint8), np.abs(confidence).view(np.uint8))  # bit by bit, but -0.0 is 0.0
    assert np.array_equal(right, correct)


@pytest.mark.parametrize("dtype", PRECISIONS)
@given(pairs=st.lists(st.tuples(st.one_of(st.sampled_from(CORNERS), st.floats(0, 1)), st.booleans()), min_size=2))
@example(pairs=[(value, right) for value in CORNERS for right in (True, False)])
def test_keys_are_in_the_order_of_confidence_and_then_of_correctness(dtype, pairs):
    confidence, correct = np.array([c for c, _ in pairs], dtype=dtype), np.array([a for _, a in pairs])
    keys = pack(confidence, correct).tolist()
    pairs = list(zip(confidence.tolist(), correct.tolist(), strict=True))
    for i in range(len(keys)):
        for j in range(len(keys)):
            assert (keys[i] < keys[j]) == (pairs[i] < pairs[j])


@pytest.mark.parametrize(("dtype", "unsigned", "signed"), [("f4", np.uint32, np.int32), ("f8", np.uint64, np.int64)])
def test_keys_take_as_much_room_as_the_confidence_and_are_positive_as_signed_numbers(dtype, unsigned, signed):
    keys = pack(np.array([0.0, 1.0], dtype=dtype), np.array([1, 1]))
    assert keys.dtype == unsigned
    assert (keys.view(signed) > 0).all()


def test_correctness_may_be_whole_numbers_or_booleans():
    confidence = np.array([0.25, 0.75])
    assert np.array_equal(pack(confidence, np.array([1, 0])), pack(confidence, np.array([True, False])))


# --- groups


def groups_of(confidence, correct, weight):
    """The groups by a plain loop: value, rows, mass, right."""
    found: dict[float, list[int]] = {}
    for value, right, times in zip(confidence.tolist(), correct.tolist(), weight.tolist(), strict=True):
        group = found.setdefault(value + 0.0, [0, 0, 0])
        for place, amount in enumerate((1, times, times * right)):
            group[place] += amount
    return [[value, *found[value]] for value in sorted(found)]


@given(some=rows(), seed=st.integers(0, 5))
def test_groups_are_those_of_a_plain_loop(some, seed):
    confidence, correct = some
    weight = weights(len(confidence), seed)
    for given_weight in (None, weight.astype(np.float64)):
        ranked = Ranking.of_rows(confidence, correct, given_weight)
        expected = groups_of(confidence, correct, np.ones_like(weight) if given_weight is None else weight)
        found = np.stack([ranked.value, ranked.mass, ranked.mass, ranked.right], 1)
        assert found.tolist() == [[value, mass, mass, right] for value, _, mass, right in expected]
        assert np.array_equal(ranked.count, ranked.mass)  # whole-number weights mean repeated rows
        assert ranked.value.dtype == confidence.dtype
        assert ranked.total == sum(mass for _, _, mass, _ in expected)


@given(some=rows(), seed=st.integers(0, 5))
def test_the_order_of_rows_leaves_every_bit_as_it_is(some, seed):
    confidence, correct = some
    weight = np.random.default_rng(seed).random(len(confidence)) + 0.1
    order = np.random.default_rng(seed + 1).permutation(len(confidence))
    for one, two in [
        (Ranking.of_rows(confidence, correct), Ranking.of_rows(confidence[order], correct[order])),
        (
            Ranking.of_rows(confidence, correct, weight),
            Ranking.of_rows(confidence[order], correct[order], weight[order]),
        ),
    ]:
        for name in ("value", "count", "mass", "right"):
            assert np.array_equal(getattr(one, name), getattr(two, name)), name


def test_minus_zero_is_in_the_group_of_zero():
    ranked = Ranking.of_rows(np.array([-0.0, 0.0, 1.0]), np.array([1, 0, 1]))
    assert ranked.count.tolist() == [2, 1]


def test_dense_rank_counts_the_distinct_values_below():
    assert (3 * dense_rank(np.array([3.0, -2.0, 3.0, 7.0]))).tolist() == [1, 0, 1, 2]


# --- cuts


def repeated(confidence, correct, weight):
    return Ranking.of_rows(np.repeat(confidence, weight), np.repeat(correct, weight))


@given(total=st.integers(1, 10**6), num_bins=st.integers(1, 500), larger_first=st.booleans())
@example(total=1, num_bins=1, larger_first=False)
@example(total=10**6, num_bins=499, larger_first=False)
def test_cuts_are_at_whole_masses_that_differ_by_at_most_one(total, num_bins, larger_first):
    ranked = Ranking(np.array([0.5]), np.array([total]), np.array([total]), np.array([0]))
    cuts = ranked.mass_cuts(num_bins, larger_first=larger_first)
    if larger_first:
        sizes = [len(part) for part in np.array_split(np.empty(total, dtype=np.uint8), num_bins)]
        expected = np.concatenate([[0], np.cumsum(sizes)])
    else:
        expected = np.array([-(-k * total // num_bins) for k in range(num_bins + 1)])
    assert np.array_equal(cuts, expected)
    assert np.ptp(np.diff(cuts)) <= 1


@given(n=st.integers(1, 300), num_bins=st.integers(1, 40))
def test_the_row_of_rank_i_is_in_bin_m_i_over_n(n, num_bins):
    cuts = Ranking.of_rows(np.linspace(0, 1, n), np.ones(n, dtype=int)).mass_cuts(num_bins)
    rank = np.arange(n)
    assert np.array_equal(np.searchsorted(cuts, rank, side="right") - 1, num_bins * rank // n)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_cuts_of_many_numbers_of_bins_are_those_of_each(weighted):
    rng = np.random.default_rng(0)
    confidence = rng.integers(0, 40, 300) / 40
    ranked = Ranking.of_rows(confidence, rng.random(300) < confidence, rng.random(300) if weighted else None)
    masses, place = ranked.all_mass_cuts(3, 25)
    for index, num_bins in enumerate(range(3, 26)):
        np.testing.assert_allclose(masses[place == index], ranked.mass_cuts(num_bins), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(ranked.values_at(masses), ranked.below_masses(masses)[1])


def test_weights_that_are_no_counts_are_cut_exactly():
    ranked = Ranking.of_rows(np.array([0.2, 0.4]), np.array([1, 0]), np.array([0.5, 0.75]))
    assert ranked.mass_cuts(5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0, 1.25]


@given(some=rows())
def test_sums_below_values_are_those_of_a_plain_loop(some):
    confidence, correct = some
    edges = np.array([0.0, 0.05, 0.25, 0.3, 0.5, 0.55, 0.75, 1.0])
    sums = Ranking.of_rows(confidence, correct).below_values(edges)
    for edge, found in zip(edges, sums.T, strict=True):
        below = confidence <= confidence.dtype.type(edge)
        expected = [below.sum(), below.sum(), confidence[below].sum(dtype=np.float64), correct[below].sum()]
        assert np.array_equal(found[[0, 1, 3]], np.array(expected)[[0, 1, 3]])
        assert found[2] == pytest.approx(expected[2], abs=1e-13)


@given(some=rows(), seed=st.integers(0, 5))
def test_sums_below_masses_share_a_group_in_proportion(some, seed):
    confidence, correct = some
    n = len(confidence)
    value = np.sort(confidence).astype(np.float64)
    mean_right = np.array([correct[confidence == v].mean() for v in np.sort(confidence)])
    cuts = np.arange(n + 1, dtype=np.float64)
    sums, edge = Ranking.of_rows(confidence, correct).below_masses(cuts)
    for cut in range(n + 1):
        expected = [cut, cut, value[:cut].sum(), mean_right[:cut].sum()]
        assert sums[:, cut] == pytest.approx(expected, abs=1e-12)
        if 0 < cut < n:  # the edge lies between the last row below and the first above
            assert edge[cut] == pytest.approx((value[cut - 1] + value[cut]) / 2, abs=1e-15)


@given(some=rows(most=20), seed=st.integers(0, 20), num_bins=st.integers(1, 12), larger_first=st.booleans())
def test_whole_weights_are_repeated_rows_for_cuts_and_sums(some, seed, num_bins, larger_first):
    confidence, correct = some
    weight = weights(len(confidence), seed)
    one = Ranking.of_rows(confidence, correct, weight.astype(np.float64))
    many = repeated(confidence, correct, weight)
    cuts = one.mass_cuts(num_bins, larger_first=larger_first)
    assert np.array_equal(cuts, many.mass_cuts(num_bins, larger_first=larger_first))
    # The first row of the sums counts rows, which are fewer than their repetitions.
    (of_one, edge_of_one), (of_many, edge_of_many) = one.below_masses(cuts), many.below_masses(cuts)
    assert of_one[1:] == pytest.approx(of_many[1:], abs=1e-12)
    assert np.array_equal(edge_of_one, edge_of_many)
    edges = np.linspace(0, 1, num_bins + 1)
    assert one.below_values(edges)[1:] == pytest.approx(many.below_values(edges)[1:], abs=1e-12)


# --- the sweep


def plain_sweep(confidence, correct, *, equal_mass: bool) -> int:
    """Count the bins up from 2 until accuracies decrease; empty bins are skipped, ties share their correctness."""
    n = len(confidence)
    order = np.argsort(confidence, kind="stable")
    value, right = confidence[order], [Fraction(int(a)) for a in correct[order]]
    for v in set(value.tolist()):
        tied = np.flatnonzero(value == v)
        share = sum(right[i] for i in tied) / Fraction(len(tied))
        for i in tied:
            right[i] = share
    for num_bins in range(2, n + 1):
        if equal_mass:
            place = [num_bins * i // n for i in range(n)]
        else:
            inner = (np.arange(1, num_bins) / num_bins).astype(value.dtype)
            place = np.searchsorted(inner, value).tolist()
        members = [[right[i] for i in range(n) if place[i] == b] for b in sorted(set(place))]
        accuracy = [sum(some) / Fraction(len(some)) for some in members]
        if any(later < earlier for earlier, later in pairwise(accuracy)):
            return num_bins - 1
    return n


@pytest.mark.parametrize("equal_mass", [True, False])
@few
@given(some=rows(most=25))
def test_the_sweep_is_that_of_a_plain_loop_on_any_rows(equal_mass, some):
    assert Ranking.of_rows(*some).sweep(equal_mass=equal_mass) == plain_sweep(*some, equal_mass=equal_mass)


@pytest.mark.parametrize("equal_mass", [True, False])
@few
@given(
    n=st.integers(1, 30),
    wrong=st.integers(0, 30),
    flips=st.lists(st.integers(0, 29), max_size=2),
    seed=st.integers(0, 9),
    dtype=st.sampled_from(PRECISIONS),
)
def test_the_sweep_is_that_of_a_plain_loop_on_nearly_separable_rows(equal_mass, n, wrong, flips, seed, dtype):
    confidence = np.sort(np.random.default_rng(seed).random(n)).astype(dtype)
    correct = np.arange(n) >= wrong
    for flip in flips:
        correct[flip % n] ^= True
    found = Ranking.of_rows(confidence, correct).sweep(equal_mass=equal_mass)
    assert found == plain_sweep(confidence, correct, equal_mass=equal_mass)


@pytest.mark.parametrize("equal_mass", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_sweep_of_calibrated_rows_is_that_of_a_plain_loop(equal_mass, seed):
    random = np.random.default_rng(seed)
    confidence = random.random(400).astype(np.float32)
    correct = random.random(400) < confidence
    found = Ranking.of_rows(confidence, correct).sweep(equal_mass=equal_mass)
    assert found == plain_sweep(confidence, correct, equal_mass=equal_mass)
    assert 2 <= found < 100


@pytest.mark.parametrize("equal_mass", [True, False])
@pytest.mark.parametrize("wrong", [0, 1, 37, 99, 100])
def test_perfectly_separated_rows_allow_as_many_bins_as_rows(equal_mass, wrong):
    ranked = Ranking.of_rows(np.linspace(0, 1, 100), np.arange(100) >= wrong)
    assert ranked.sweep(equal_mass=equal_mass) == 100


@pytest.mark.parametrize("equal_mass", [True, False])
@pytest.mark.parametrize("right", [True, False])
def test_one_row_has_one_bin(equal_mass, right):
    assert Ranking.of_rows(np.array([0.7]), np.array([right])).sweep(equal_mass=equal_mass) == 1


@pytest.mark.parametrize("equal_mass", [True, False])
@few
@given(some=rows(most=12), seed=st.integers(0, 9))
@example(some=(np.array([0.2, 0.4, 0.6]), np.array([False, True, True])), seed=0)
@example(some=(np.array([0.5, 0.5]), np.array([True, False])), seed=3)
def test_the_sweep_of_whole_weights_is_that_of_repeated_rows(equal_mass, some, seed):
    confidence, correct = some
    weight = weights(len(confidence), seed)
    one = Ranking.of_rows(confidence, correct, weight.astype(np.float64)).sweep(equal_mass=equal_mass)
    assert one == repeated(confidence, correct, weight).sweep(equal_mass=equal_mass)


@pytest.mark.parametrize("equal_mass", [True, False])
def test_one_inverted_pair_in_the_middle_of_200_000_separable_rows_does_not_slow_the_sweep(equal_mass):
    n = 200_000
    correct = np.arange(n) >= n // 2
    correct[n // 2 - 1 : n // 2 + 1] = True, False
    ranked = Ranking.of_rows(np.linspace(0.1, 0.9, n), correct)
    with at_most(2.0):
        found = ranked.sweep(equal_mass=equal_mass)
    if equal_mass:
        assert found == n // 2  # two rows a bin keep the pair apart: one correct on the left, one on the right
    else:
        assert 2 <= found < 1.25 * n  # bins over all of [0, 1], of which the rows fill 0.8


@pytest.mark.parametrize("equal_mass", [True, False])
def test_the_sweep_of_200_000_separable_rows_is_quick(equal_mass):
    n = 200_000
    ranked = Ranking.of_rows(np.linspace(0.1, 0.9, n), np.arange(n) >= n // 2)
    with at_most(2.0):
        assert ranked.sweep(equal_mass=equal_mass) == n


# --- blocks


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("n", [1, 6, 7, 8, 50])
def test_scanning_in_blocks_changes_no_measure(monkeypatch, n, tied, weighted):
    random = np.random.default_rng(n)
    confidence = random.integers(1, 30, n) / 30 if tied else random.random(n)
    correct = random.random(n) < confidence
    weight = random.integers(1, 4, n).astype(float) if weighted else None
    measures = {
        "ks_error": m.ks_error,
        "mmce": m.mmce,
        "weighted mmce": lambda rows: m.mmce(rows, weighted=True),
        "aurc": m.aurc,
        "auroc_correctness": m.auroc_correctness,
    }

    def values() -> dict[str, float]:
        read = m.from_pairs(confidence, correct, sample_weight=weight)
        return {name: float(measure(read)) for name, measure in measures.items()}

    whole = values()
    monkeypatch.setattr(ranking, "BLOCK", 7)
    assert len(list(Ranking.of_rows(confidence, correct).blocks())) == -(-len(np.unique(confidence)) // 7)
    assert values() == pytest.approx(whole, abs=1e-13, nan_ok=True)
