"""Lists of the most likely classes in files give what they give in memory."""

from __future__ import annotations

import numpy as np
import pytest

from focalcal.errors import InputError
from focalcal.files import TopKStream
from focalcal.metrics.truncated import TopK, evaluate_truncated, temperature_interval

pa = pytest.importorskip("pyarrow")
from pyarrow import feather, parquet  # noqa: E402

RNG = np.random.default_rng(0)
LOGITS = 2 * RNG.normal(size=(300, 50))
LOG_PROBS = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
LABELS = (LOGITS / 1.5 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
ORDER = np.argsort(-LOG_PROBS, axis=1)[:, :5]
TOP = np.take_along_axis(LOG_PROBS, ORDER, 1)
LENGTHS = RNG.integers(1, 6, size=300)
KNOWN = LOG_PROBS[np.arange(300), LABELS]


def lists(values):
    return [row[:length].tolist() for row, length in zip(values, LENGTHS, strict=True)]


@pytest.fixture
def in_memory():
    inside = np.arange(5) < LENGTHS[:, None]
    return TopK(ORDER, np.where(inside, TOP, -np.inf), LABELS, num_classes=50, label_log_probs=KNOWN)


@pytest.fixture(params=["parquet", "feather"])
def folder(request, tmp_path):
    """Two shards with lists of different lengths."""
    for place, rows in enumerate((slice(0, 120), slice(120, 300))):
        table = pa.table({
            "top_ids": lists(ORDER)[rows],
            "top_log_probs": lists(TOP)[rows],
            "label": LABELS[rows],
            "label_log_prob": KNOWN[rows],
        })  # fmt: skip
        path = tmp_path / f"part-{place}.{request.param}"
        if request.param == "parquet":
            parquet.write_table(table, path, row_group_size=50)
        else:
            feather.write_feather(table, path, compression="uncompressed", chunksize=30)
    return tmp_path


def test_shards_are_measured_as_arrays_are(folder, in_memory):
    stream = TopKStream(folder, num_classes=50, label_log_probs="label_log_prob")
    streamed, whole = evaluate_truncated(stream), evaluate_truncated(in_memory)
    assert streamed.num_rows == 300
    assert streamed.exact == pytest.approx(whole.exact, abs=1e-12)
    for name, bound in whole.bounds.items():
        assert streamed.bounds[name] == pytest.approx(bound, abs=1e-12)
    there, here = temperature_interval(lambda: stream), temperature_interval(lambda: [in_memory])
    assert vars(there) == pytest.approx(vars(here), rel=1e-9)


def test_what_is_wrong_names_the_file(folder):
    with pytest.raises(InputError, match=r"part-0\..*no column tokens"):
        evaluate_truncated(TopKStream(folder, num_classes=50, classes="tokens"))
    with pytest.raises(InputError, match=r"part-0\..*classes"):
        evaluate_truncated(TopKStream(folder, num_classes=40))
    with pytest.raises(InputError, match=r"part-0\..*lists"):
        evaluate_truncated(TopKStream(folder, num_classes=50, log_probs="label_log_prob"))
    np.save(folder / "scores.npy", TOP)
    with pytest.raises(InputError, match="read from"):
        list(TopKStream(folder / "scores.npy", num_classes=50))
