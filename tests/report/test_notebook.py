"""The report from Python, figures that show themselves, and what tab completion finds."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from html import unescape

import numpy as np
import pytest

import focalcal as fc

pytest.importorskip("plotly")
RNG = np.random.default_rng(0)
LOGITS = 3 * RNG.normal(size=(240, 3))
LABELS = np.where(RNG.random(240) < 0.6, LOGITS.argmax(1), RNG.integers(0, 3, 240))
FEW = {"num_resamples": 100}


def versions(written):
    return [version.name for version in written.contents.models[0].versions]


def test_the_report_is_written_and_shown_in_a_frame(tmp_path):
    written = fc.report(LOGITS, LABELS, out=tmp_path / "mine.html", title="Mine", name="a < b", **FEW)
    page = (tmp_path / "mine.html").read_text("utf-8")
    assert written.path == tmp_path / "mine.html"
    assert written.num_bytes == (tmp_path / "mine.html").stat().st_size
    assert "overconfident" in written.verdict
    assert versions(written) == ["as it is", "temperature", "focal-temperature"]
    shown = written._repr_html_()
    assert shown.startswith("<iframe ")
    start = shown.index('srcdoc="') + len('srcdoc="')
    assert unescape(shown[start : shown.rindex('"')]) == page
    written.path.unlink()
    assert "is gone" in written._repr_html_()


def test_half_of_the_rows_are_measured_or_all_where_others_are_fitted_to(tmp_path):
    out = tmp_path / "r.html"
    half = fc.report(LOGITS, LABELS, out, **FEW).contents.models[0]
    assert (half.num_rows, half.num_fit_rows) == (120, 120)
    third = fc.report(LOGITS, LABELS, out, holdout=1 / 3, **FEW).contents.models[0]
    assert (third.num_rows, third.num_fit_rows) == (80, 160)
    other = fc.report(LOGITS[:200], LABELS[:200], out, fit=(LOGITS[200:], LABELS[200:]), **FEW).contents.models[0]
    assert (other.num_rows, other.num_fit_rows) == (200, 40)
    assert other.split == "fitted to 40 other rows, scored on 200 rows"


def test_methods_are_calibrators_or_their_names_or_none(tmp_path):
    out = tmp_path / "r.html"
    assert versions(fc.report(LOGITS, LABELS, out, methods=["vector"], **FEW)) == ["as it is", "vector"]
    assert versions(fc.report(LOGITS, LABELS, out, methods={"mine": fc.VectorScaling()}, **FEW)) == ["as it is", "mine"]
    nothing = fc.report(LOGITS, LABELS, out, methods=[], **FEW)
    assert versions(nothing) == ["as it is"]
    assert nothing.contents.models[0].num_rows == 240


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"labels": LABELS[:5]}, r"labels: must have shape \(240,\)"),
        ({"holdout": 1.0}, "holdout: must lie between 0 and 1; got 1.0"),
        ({"class_names": ["a", "b"]}, "class_names: must be 3, one for each class; got 2"),
        ({"kind": "logit"}, "kind: must be one of"),
        ({"scores": np.zeros((4, 3, 2)), "labels": np.zeros((4, 2), int)}, r"scores: must have shape \(N, K\)"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(options, says, tmp_path):
    with pytest.raises(fc.InputError, match=says):
        fc.report(**{"scores": LOGITS, "labels": LABELS, "out": tmp_path / "r.html", **options})
    assert not list(tmp_path.iterdir())


ORDERS = [
    "import focalcal as fc; fc.report; from focalcal.report import plots; import focalcal.report.plots as p",
    "import focalcal.report.build; import focalcal as fc",
    "from focalcal.report import plots; import focalcal as fc; fc.plots",
]


@pytest.mark.parametrize("order", ORDERS)
def test_the_function_and_the_package_of_its_name_do_not_hide_each_other(order):
    code = (
        f"{order}; import focalcal.report as r; assert callable(fc.report) and fc.report is r; r.plots; fc.report.plots"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------------- figures


def is_png(value):
    return value._repr_png_()[:4] == b"\x89PNG"


def test_figures_show_themselves():
    pytest.importorskip("matplotlib")
    axes = fc.evaluate(LOGITS, LABELS).plot()
    assert is_png(axes)
    assert is_png(axes.figure)
    assert is_png(fc.plots.reliability_diagram(LOGITS, LABELS))
    assert is_png(fc.plots.reliability_diagrams({"a": LOGITS, "b": LOGITS, "c": LOGITS}, LABELS))
    assert is_png(fc.plots.risk_coverage({"a": LOGITS}, LABELS))


@pytest.mark.slow
def test_figures_and_reports_show_in_a_fresh_notebook(tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    pytest.importorskip("ipykernel")
    cells = [
        "import focalcal as fc, numpy as np; logits = np.random.randn(200, 3); labels = logits.argmax(1)",
        "fc.evaluate(logits, labels).plot()",
        "fc.plots.reliability_diagrams({'a': logits, 'b': logits}, labels)",
        "fc.report(logits, labels, num_resamples=100)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    nbclient.NotebookClient(notebook, resources={"metadata": {"path": str(tmp_path)}}).execute()
    first, second, third = (
        [output["data"] for output in cell.outputs if "data" in output] for cell in notebook.cells[1:]
    )
    assert any("image/png" in data for data in first)
    assert any("image/png" in data for data in second)
    assert any("<iframe" in data.get("text/html", "") for data in third)
    assert json.dumps(notebook)


# ---------------------------------------------------------------------- tab completion


def test_completion_shows_public_names_only():
    for module in (fc.metrics, fc.losses, fc.calibrators, fc.plots):
        assert set(dir(module)) - {"streaming"} == set(module.__all__), module.__name__
    assert set(dir(fc)) == {*fc.__all__, "__version__"}


@pytest.mark.parametrize("kind", [fc.FocalLoss, fc.AdaFocalLoss, fc.CalFocalLoss])
def test_signatures_name_the_options(kind):
    parameters = inspect.signature(kind).parameters
    assert "options" not in parameters
    assert {"weight", "ignore_index", "label_smoothing", "reduction", "validate"} <= set(parameters)
    assert parameters["ignore_index"].default == -100
    assert parameters["ignore_index"].kind is inspect.Parameter.KEYWORD_ONLY
    assert kind(ignore_index=7).ignore_index == 7
    assert "weight" not in inspect.signature(kind()).parameters  # the call of a loss is another thing


def test_the_call_of_the_report_has_its_signature():
    assert list(inspect.signature(fc.report).parameters)[:3] == ["scores", "labels", "out"]
