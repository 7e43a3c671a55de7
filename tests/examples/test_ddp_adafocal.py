"""The DDP example: two processes find what one finds, and one finds what a plain loop does."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
import torch

import focalcal as fc
from focalcal import noisy_digits
from tests.examples.test_examples import load
from tests.ranks import launched, meeting_point, ranked, run_ranks

pytestmark = [
    pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="this torch has no gloo backend"),
    ranked,  # two runs for all tests of this file
]

EPOCHS = 2


def main(folder: Path, printed: Path) -> None:
    """Run the example; what it prints goes into a file."""
    files = ["--json", str(folder / "found.json"), "--checkpoint", str(folder / "saved.pt")]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        load("ddp_adafocal").main(["--double", "--epochs", str(EPOCHS), *files])
    printed.write_text(out.getvalue())


def run_rank(rank: int, folder: Path, port: int) -> None:
    launched(rank, 2, port)
    main(folder, folder / f"printed-{rank}.txt")


def outcome(folder: Path):
    """What a run printed, its results and its checkpoint."""
    out = "".join(file.read_text() for file in sorted(folder.glob("printed*.txt")))
    return out, json.loads((folder / "found.json").read_text()), torch.load(folder / "saved.pt", weights_only=True)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same by one process, this one."""
    folder = tmp_path_factory.mktemp("alone")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: 0)
        patch.delenv("RANK", raising=False)
        main(folder, folder / "printed.txt")
    return outcome(folder)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """As torchrun starts it, which docs/distributed.md does."""
    folder, store = tmp_path_factory.mktemp("together"), meeting_point(2)
    wrong = run_ranks(run_rank, folder, store.port, world=2)
    assert not wrong, wrong
    return outcome(folder)


def numbers(evaluation: dict) -> dict[str, float]:
    return {name: value for name, value in evaluation.items() if isinstance(value, float)}


def network_of(saved: dict) -> torch.nn.Module:
    network = noisy_digits.make_network().double()
    network.load_state_dict(saved["network"])
    return network


def test_one_process_is_a_plain_loop(alone):
    """The same batches without DDP, samplers and shares: the permutation of an epoch is that of its number."""
    out, found, saved = alone
    assert not torch.distributed.is_initialized()
    train, val, test = noisy_digits.load()
    torch.manual_seed(0)
    network, loss = noisy_digits.make_network().double(), fc.AdaFocalLoss()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    for epoch in range(EPOCHS):
        order = torch.randperm(500, generator=torch.Generator().manual_seed(epoch))
        for batch in order[:480].split(48):
            optimizer.zero_grad()
            loss(network(train.images[batch].double()), train.labels[batch]).backward()
            optimizer.step()
        with torch.no_grad():
            val_logits = network(val.images.double())
        loss.update(val_logits, val.labels)
        assert found["epochs"][epoch]["gamma"] == pytest.approx(loss.gamma.tolist(), abs=1e-9)
        expected = fc.evaluate(val_logits, val.labels)
        assert found["epochs"][epoch]["nll"] == pytest.approx(expected.nll, abs=1e-9)
        assert found["epochs"][epoch]["ece"] == pytest.approx(expected.ece, abs=1e-9)
    scaling = fc.TemperatureScaling().fit(val_logits, val.labels)
    assert found["temperature"] == pytest.approx(scaling.temperature_, abs=1e-9)
    with torch.no_grad():
        logits = network(test.images.double())
    assert numbers(found["test"]) == pytest.approx(numbers(fc.evaluate(logits, test.labels).to_dict()), abs=1e-9)
    after = fc.evaluate(scaling.predict_probs(logits), test.labels, kind="probs")
    assert numbers(found["test_calibrated"]) == pytest.approx(numbers(after.to_dict()), abs=1e-9)
    assert saved["loss"]["gamma"].tolist() == found["gamma_by_rank"][0]
    assert "897 test rows" in out


@pytest.mark.slow
def test_two_processes_have_the_same_gammas(together):
    _, found, saved = together
    assert found["world_size"] == 2
    first, second = found["gamma_by_rank"]
    assert first == second == found["epochs"][-1]["gamma"] == saved["loss"]["gamma"].tolist()
    assert 1.0 not in first


@pytest.mark.slow
def test_two_processes_count_every_row_once(together):
    _, found, _ = together
    assert (
        [sum(counts) for counts in found["bin_counts"]] == [epoch["n"] for epoch in found["epochs"]] == [400] * EPOCHS
    )
    assert found["test"]["n"] == found["test_calibrated"]["n"] == 897  # odd: shares of equal size would have 898


@pytest.mark.slow
def test_two_processes_find_what_one_finds(alone, together):
    _, one, one_saved = alone
    _, two, two_saved = together
    assert (one["world_size"], two["world_size"]) == (1, 2)
    assert two["bin_counts"] == one["bin_counts"]
    for here, there in zip(one["epochs"], two["epochs"], strict=True):
        assert there == {name: pytest.approx(value, abs=1e-9) for name, value in here.items()}
    assert two["temperature"] == pytest.approx(one["temperature"], abs=1e-9)
    for name in ("test", "test_calibrated"):
        assert numbers(two[name]) == pytest.approx(numbers(one[name]), abs=1e-9)
        assert two[name]["bins"]["count"] == one[name]["bins"]["count"]
    for name, weights in one_saved["network"].items():
        torch.testing.assert_close(two_saved["network"][name], weights, atol=1e-9, rtol=0)


@pytest.mark.slow
def test_the_evaluation_is_that_of_the_saved_network_on_all_test_rows(together):
    _, found, saved = together
    _, _, test = noisy_digits.load()
    with torch.no_grad():
        logits = network_of(saved)(test.images.double())
    assert numbers(found["test"]) == pytest.approx(numbers(fc.evaluate(logits, test.labels).to_dict()), abs=1e-9)


@pytest.mark.slow
def test_rank_0_speaks_for_all(alone, together):
    """The printed tables are the same, digit by digit, and printed once."""
    assert together[0] == alone[0]
    assert together[0].count("epoch    NLL") == 1
    assert len(together[0].splitlines()) == 1 + EPOCHS + 2 + 6
