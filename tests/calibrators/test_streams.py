"""A fit to a stream of batches is the fit to all of them at once, and a stream that cannot be right is refused."""

from __future__ import annotations

import itertools
import weakref

import numpy as np
import pytest
import torch

from focalcal.calibrators.fit_data import LabelledLogits
from focalcal.calibrators.search import sample
from focalcal.calibrators.search.sample import RowSample
from focalcal.errors import InputError
from focalcal.predictions import stream
from tests.calibrators.cases import CASES, calibrators_that, close, softmax, state_of

streamed = calibrators_that("streams")
# Numbers and arrays, for what the data of a fit does whatever the method.
two_streamed = pytest.mark.parametrize(
    "case", [case for case in CASES if case.id in ("temperature nll", "vector")], ids=lambda case: case.id
)


@pytest.fixture
def read_every_time(monkeypatch):
    """No room for the rows of a stream; the confidences of these ones still have room."""
    monkeypatch.setattr(stream, "MEMORY", 240)
    monkeypatch.setattr(stream, "_BYTES_PER_ROW", 1)


def batches(*columns, sizes=(1, 99, 0, 7, 60, 73)):
    """The rows of the columns in batches of the given sizes; one batch is empty, one a single row."""
    edges = np.cumsum([0, *sizes])
    assert edges[-1] == len(columns[0])
    return [tuple(column[a:b] for column in columns) for a, b in itertools.pairwise(edges)]


def agree(case, streamed, whole):
    """The same calibrator and the same report, but for the order in which sums were taken."""
    logits = case.data(seed=9)[0]
    close(streamed.predict_probs(logits), whole.predict_probs(logits))
    for part, other in zip(streamed.buffers(), whole.buffers(), strict=True):
        close(part, other, 1e-7)
    close(streamed.report_.before, whole.report_.before, 1e-12)
    close(streamed.report_.after, whole.report_.after, 1e-10)
    assert streamed.report_.num_rows == whole.report_.num_rows
    assert streamed.report_.converged
    assert streamed.num_classes_ == whole.num_classes_


def refused(case, factory, argument, *words):
    """The stream is refused by an InputError that begins with the argument, and leaves nothing behind."""
    calibrator = case.make()
    with pytest.raises(InputError) as caught:
        calibrator.fit(factory)
    message = str(caught.value)
    assert message.startswith(f"{argument}:"), message
    assert all(word in message for word in words), message
    assert state_of(calibrator) == state_of(case.make())


# ---------------------------------------------------------------------------------------------------- the same result


@streamed
def test_a_stream_gives_what_the_arrays_give(case):
    parts = batches(*case.data())
    calibrator = case.make()
    assert calibrator.fit(lambda: parts) is calibrator
    agree(case, calibrator, case.fitted())


@two_streamed
def test_a_small_stream_is_read_once(case):
    calibrator = case.make().fit(lambda: batches(*case.data()))
    assert calibrator.report_.passes == 1


@streamed
def test_a_stream_that_is_not_kept_gives_what_the_arrays_give(case, read_every_time):
    opened = []

    def factory():
        opened.append(1)
        return batches(*case.data())

    calibrator = case.make().fit(factory)
    agree(case, calibrator, case.fitted())
    assert calibrator.report_.passes == len(opened)


@two_streamed
def test_one_batch_gives_the_same_to_the_last_bit(case):
    streamed, whole = state_of(case.make().fit(lambda: [case.data()])), state_of(case.fitted())
    for state in (streamed, whole):
        for name, part in state.items():
            if name.endswith("_extra_state"):
                part["report"] = {**part["report"], "passes": None}
    assert streamed == whole


@two_streamed
def test_batches_may_come_from_a_generator_function(case):
    def factory():
        yield from batches(*case.data())

    agree(case, case.make().fit(factory), case.fitted())


@two_streamed
def test_batches_may_come_from_a_data_loader(case):
    dataset = torch.utils.data.TensorDataset(*(torch.tensor(column) for column in case.data()))
    loader = torch.utils.data.DataLoader(dataset, batch_size=50)  # its batches are lists
    agree(case, case.make().fit(lambda: loader), case.fitted())


@two_streamed
def test_batches_may_come_in_another_order_at_each_pass(case):
    generator, rows = np.random.default_rng(0), batches(*case.data())
    shuffled = case.make().fit(lambda: [rows[i] for i in generator.permutation(len(rows))])
    agree(case, shuffled, case.fitted())


@streamed
def test_weights_come_with_the_batches(case):
    logits, labels = case.data()
    weight = np.random.default_rng(4).random(len(labels))
    weight[100:107] = 0  # one batch in which no row counts
    whole = case.make().fit(logits, labels, sample_weight=weight)
    agree(case, case.make().fit(lambda: batches(logits, labels, weight)), whole)


@two_streamed
def test_batches_with_and_without_weights_may_be_mixed(case):
    logits, labels = case.data()
    parts = batches(logits, labels)
    parts[1] = (*parts[1], np.full(99, 1.0))
    parts[3] = (*parts[3], None)
    agree(case, case.make().fit(lambda: parts), case.fitted())


@pytest.mark.parametrize("kind", ["probs", "log_probs"])
@two_streamed
def test_a_stream_may_be_of_any_kind(case, kind):
    logits, labels = case.data()
    scores = softmax(logits) if kind == "probs" else np.log(softmax(logits))
    whole = case.make().fit(scores, labels, kind=kind)
    agree(case, case.make().fit(lambda: batches(scores, labels), kind=kind), whole)


@two_streamed
def test_a_stream_may_have_further_dimensions_and_one_score_of_two_classes(case):
    logits, labels = case.data()
    deep = np.moveaxis(logits.reshape(24, 5, 2, -1), 3, 1), labels.reshape(24, 5, 2)
    parts = [tuple(column[i : i + 7] for column in deep) for i in range(0, 24, 7)]
    agree(case, case.make().fit(lambda: parts), case.fitted())
    logits, labels = case.binary_data()
    scores = logits[:, 1] - logits[:, 0]
    whole, stream = case.make().fit(scores, labels), case.make().fit(lambda: batches(scores, labels))
    close(stream.predict_probs(scores), whole.predict_probs(scores))


@two_streamed
def test_precisions_may_be_mixed_and_batches_be_tensors_or_arrays(case):
    logits, labels = case.data()
    exact = logits.astype(np.float16).astype(np.float64)  # the same values in every precision
    parts = batches(exact, labels)
    parts[1] = (torch.tensor(parts[1][0]), torch.tensor(parts[1][1], dtype=torch.int32))
    parts[4] = (parts[4][0].astype(np.float16), parts[4][1].astype(np.uint8))
    mixed, whole = case.make().fit(lambda: parts), case.make().fit(exact, labels)
    close(mixed.predict_probs(exact), whole.predict_probs(exact), 1e-4)


@two_streamed
def test_the_batches_are_never_modified(case):
    parts = [tuple(column.copy() for column in part) for part in batches(*case.data())]
    kept = [[column.tobytes() for column in part] for part in parts]
    case.make().fit(lambda: parts)
    assert [[column.tobytes() for column in part] for part in parts] == kept


@two_streamed
def test_batches_are_let_go_after_use(case):
    alive = []

    def factory():
        for logits, labels in batches(*case.data(), sizes=(24,) * 10):
            tensor = torch.tensor(logits)
            assert sum(reference() is not None for reference in alive) <= 2  # this one and the one before
            alive.append(weakref.ref(tensor))
            yield tensor, labels

    case.make().fit(factory)
    assert len(alive) >= 10


# ------------------------------------------------------------------------------------------------------ what is refused


@two_streamed
def test_an_iterator_is_refused_because_it_can_be_read_once(case):
    parts = batches(*case.data())
    refused(case, parts, "labels", "function")
    refused(case, iter(parts), "labels", "function")


@two_streamed
def test_an_iterator_that_a_function_gives_again_is_refused_as_well(case, read_every_time):
    exhausted = iter(batches(*case.data()))
    refused(case, lambda: exhausted, "batches", "opens the data anew")


@two_streamed
def test_an_empty_stream_is_refused(case):
    logits, labels = case.data()
    refused(case, list, "logits", "at least 2 rows")
    refused(case, lambda: [(logits[:0], labels[:0])], "logits", "at least 2 rows")
    refused(case, lambda: [(logits[:1], labels[:1])], "logits", "at least 2 rows")
    refused(case, lambda: [(logits, labels, np.zeros(len(labels)))], "logits", "at least 2 rows")
    case.make().fit(lambda: [(logits[:1], labels[:1]), (logits[1:2], labels[1:2])])


@two_streamed
def test_batches_with_different_numbers_of_classes_are_refused(case):
    logits, labels = case.data()
    more = np.concatenate([logits, logits[:, :1]], 1)
    refused(case, lambda: [(logits, labels), (more, labels)], "logits", str(case.classes))


@two_streamed
def test_what_is_no_batch_is_refused(case):
    logits, labels = case.data()
    refused(case, lambda: [logits], "batches", "tuples")
    refused(case, lambda: [(logits,)], "batches", "tuples")
    refused(case, lambda: [(logits, labels, np.ones(len(labels)), 0)], "batches", "tuples")
    refused(case, lambda: [{"logits": logits, "labels": labels}], "batches", "tuples")
    refused(case, lambda: None, "batches")
    refused(case, lambda: 3, "batches")


@two_streamed
def test_bad_values_in_any_batch_are_refused(case):
    logits, labels = (column.copy() for column in case.data())
    weight = np.ones(len(labels))
    logits[200, 1] = np.nan
    refused(case, lambda: batches(logits, labels), "logits", "finite")
    logits[200, 1], labels[200] = 0.0, case.classes
    refused(case, lambda: batches(logits, labels), "labels")
    labels[200], weight[200] = 0, -1
    refused(case, lambda: batches(logits, labels, weight), "sample_weight")
    refused(case, lambda: [(logits, labels[:-1])], "labels")
    with pytest.raises(InputError, match=r"^kind:"):
        case.make().fit(lambda: [(logits, labels)], kind="logit")


def second_pass(case, change):
    """A factory whose data is changed from its second call on."""
    calls = []

    def factory():
        calls.append(1)
        columns = [column.copy() for column in case.data()]
        return batches(*columns) if len(calls) == 1 else change(*columns)

    return factory


CHANGES = {
    "fewer rows": lambda logits, labels: [(logits[:-1], labels[:-1])],
    "more rows": lambda logits, labels: [(logits, labels), (logits[:1], labels[:1])],
    "other logits": lambda logits, labels: [(1.5 * logits, labels)],
    "other labels": lambda logits, labels: [(logits, (labels + 1) % logits.shape[1])],
    "weights": lambda logits, labels: [(logits, labels, np.full(len(labels), 2.0))],
    "not a number": lambda logits, labels: [(np.nan * logits, labels)],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@two_streamed
def test_other_data_at_the_second_pass_is_refused(case, change, read_every_time):
    refused(case, second_pass(case, change), "batches")


@two_streamed
def test_an_error_of_the_stream_comes_through_and_leaves_nothing_behind(case):
    def factory():
        yield case.data()
        raise ConnectionError("gone")

    calibrator = case.fitted()
    with pytest.raises(ConnectionError, match="gone"):
        calibrator.fit(factory)
    assert state_of(calibrator) in (state_of(case.make()), state_of(case.fitted()))


@calibrators_that("not streams")
def test_what_is_no_sum_over_rows_is_fitted_to_a_small_stream_as_to_arrays(case):
    agree(case, case.make().fit(lambda: batches(*case.data())), case.fitted())


def test_most_methods_stream():
    assert {"temperature nll", "focal"} <= {case.id for case in CASES if case.streams}


@pytest.mark.parametrize("size", [1, 3, 7])
def test_a_sample_is_evenly_spread_however_small_the_blocks_are(monkeypatch, size):
    monkeypatch.setattr(sample, "SAMPLED", 100)
    rows = torch.arange(1000.0).unsqueeze(1).expand(-1, 2)
    blocks = [LabelledLogits(part, torch.zeros(len(part), dtype=torch.long), None) for part in rows.split(size)]
    whole = RowSample.of(iter(blocks))
    places = torch.cat([block.logits[:, 0] for block in whole.blocks])
    assert whole.stride == 32
    assert places.tolist() == list(range(0, 1000, 32))
    halves = RowSample.of(iter(blocks[: len(blocks) // 2])).merge(RowSample.of(iter(blocks[len(blocks) // 2 :])))
    assert 20 <= sum(len(block.labels) for block in halves.blocks) <= 50


@pytest.mark.parametrize("case", [case for case in CASES if not case.ready], ids=lambda case: case.id)
def test_a_source_may_use_its_memory_again(case, read_every_time):
    logits, labels = (torch.as_tensor(np.array(each)) for each in case.data())

    def reused():
        held = torch.empty_like(logits[:60]), torch.empty_like(labels[:60])
        for start in range(0, 240, 60):
            held[0][:], held[1][:] = logits[start : start + 60], labels[start : start + 60]
            yield held

    fresh = [(logits[a : a + 60], labels[a : a + 60]) for a in range(0, 240, 60)]
    one, other = case.make().fit(reused), case.make().fit(lambda: fresh)
    for part, same in zip(one.buffers(), other.buffers(), strict=True):
        assert torch.equal(part, same)
