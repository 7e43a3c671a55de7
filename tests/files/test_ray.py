"""Passes on a Ray cluster: what they give is what this process gives, whatever happens to a worker."""

from __future__ import annotations

import os
import signal

import numpy as np
import pytest

import focalcal as fc
from focalcal.errors import InputError
from focalcal.files import PredictionStream
from focalcal.files.derived_streams import MappedStream
from tests.cli.tools import call

ray = pytest.importorskip("ray")
pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

# One worker of pytest-xdist runs them all, so that there is one cluster.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("shared")]

RNG = np.random.default_rng(0)
LOGITS = (3 * RNG.normal(size=(3000, 10))).astype(np.float32)
LABELS = (LOGITS / 1.7 + RNG.gumbel(size=LOGITS.shape)).argmax(1)
LANGUAGES = RNG.choice(["de", "en"], 3000)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Twenty shards: more than one task merges at a time."""
    folder = tmp_path_factory.mktemp("shards")
    for place in range(20):
        rows = slice(150 * place, 150 * (place + 1))
        columns = {"logits": list(LOGITS[rows]), "label": LABELS[rows], "language": LANGUAGES[rows]}
        parquet.write_table(pa.table(columns), folder / f"part-{place:02d}.parquet")
    return folder


def test_evaluate_gives_what_it_gives_here(cluster, shards):
    here, there = (fc.evaluate(PredictionStream(shards), by="language", engine=engine) for engine in (None, "ray"))
    for one, other in [(here.overall, there.overall), *((here[name], there[name]) for name in here)]:
        first, second = one.to_dict(), other.to_dict()
        assert first["n"] == second["n"]
        assert first["bins"]["count"] == second["bins"]["count"]
        assert first["equal_mass_bins"]["count"] == second["equal_mass_bins"]["count"]
        for name, value in first.items():
            if isinstance(value, float):
                assert second[name] == pytest.approx(value, abs=1e-12), name


@pytest.mark.parametrize(
    "make",
    [
        fc.TemperatureScaling,
        fc.EnsembleTemperatureScaling,
        fc.HistogramBinning,
        lambda: fc.TemperatureScaling("ada_ece", grid=[1.2, 1.5, 1.8, 2.1]),
        lambda: fc.FocalTemperatureScaling("nll", "continuous"),
    ],
    ids=["temperature", "ensemble", "histogram", "ada_ece", "focal"],
)
def test_fits_give_what_they_give_here(cluster, shards, make):
    here = make().fit(PredictionStream(shards))
    there = make().fit(PredictionStream(shards), engine="ray")
    if isinstance(here, fc.HistogramBinning):  # here the rows were kept, there a histogram stands for them
        assert np.abs(here.predict_probs(LOGITS) - there.predict_probs(LOGITS)).mean() < 1e-3
        here = make().fit(PredictionStream(shards, memory=1000))
        there = make().fit(PredictionStream(shards, memory=1000), engine="ray")
    for one, other in zip(here.buffers(), there.buffers(), strict=True):
        assert np.allclose(one, other, rtol=1e-9, atol=1e-9)
    assert there.report_.num_rows == 3000
    assert there.report_.passes >= 1


def test_a_worker_that_is_killed_changes_nothing(cluster, shards, tmp_path):
    mark = str(tmp_path / "killed")

    def deadly(batches):
        for place, batch in enumerate(batches):
            if batch.name.endswith("part-07.parquet") and not os.path.exists(mark):
                open(mark, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch
            assert place < 100

    there = fc.evaluate(MappedStream(PredictionStream(shards), deadly).on("ray"))
    assert os.path.exists(mark)
    here = fc.evaluate(LOGITS, LABELS)
    assert there.n == 3000
    assert there.bins.count.tolist() == here.bins.count.tolist()
    assert there.nll == pytest.approx(here.nll, abs=1e-12)


@pytest.mark.parametrize("how", ["corrupt", "classes"])
def test_a_bad_shard_is_named_or_left_out(cluster, shards, tmp_path, how):
    for file in shards.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    bad = tmp_path / "part-10.parquet"
    if how == "corrupt":
        bad.write_bytes(bad.read_bytes()[:-500])
    else:
        parquet.write_table(
            pa.table({"logits": list(LOGITS[:9, :7]), "label": np.zeros(9, int), "language": ["de"] * 9}), bad
        )
    with pytest.raises(InputError, match=r"part-10\.parquet"):
        fc.evaluate(PredictionStream(tmp_path), engine="ray")
    stream = PredictionStream(tmp_path, on_bad_shard="skip")
    kept = np.r_[:1500, 1650:3000]
    assert fc.evaluate(stream, engine="ray").nll == pytest.approx(
        fc.evaluate(LOGITS[kept], LABELS[kept]).nll, abs=1e-12
    )
    assert list(stream.skipped) == [str(bad)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray itself
def test_a_dataset_of_ray_is_a_stream(cluster, shards):
    dataset = ray.data.read_parquet(str(shards))
    there = fc.evaluate(PredictionStream(dataset), engine="ray")
    assert there.nll == pytest.approx(fc.evaluate(LOGITS, LABELS).nll, abs=1e-12)
    assert fc.evaluate(PredictionStream(dataset)).n == 3000


def test_the_command_line_has_the_engine(cluster, shards):
    there = call("evaluate", f"{shards}/*.parquet", "--engine", "ray", "--json")
    assert there.code == 0, there.err
    here = call("evaluate", f"{shards}/*.parquet", "--engine", "stream", "--json")
    assert there.json()["before"]["measures"]["nll"]["value"] == pytest.approx(
        here.json()["before"]["measures"]["nll"]["value"], abs=1e-12
    )
    assert there.json()["engine"] == "ray"
