"""The page: its opening, its sections in order, and how to read them."""

from __future__ import annotations

from reproduction.labels import IMAGES, NETWORKS, TEXT, TITLES, All, listed
from reproduction.pages.after_training.comparisons import comparisons_section, criterion_section
from reproduction.pages.after_training.differences import outside
from reproduction.pages.after_training.focal import focal_count, focal_section, rows_section
from reproduction.pages.after_training.formats import count
from reproduction.pages.after_training.line_search import line_search_section, line_verdict
from reproduction.pages.after_training.means import means_section, ranks_sentence, some_runs_section
from reproduction.pages.after_training.numbers import all_of, published, runs_of, trained
from reproduction.pages.after_training.starts import start_section
from reproduction.pages.after_training.temperatures import temperatures_section

TITLE = "Calibration after training"
_SECTIONS = (
    means_section,
    some_runs_section,
    comparisons_section,
    line_search_section,
    focal_section,
    rows_section,
    criterion_section,
    start_section,
    temperatures_section,
)
_READING = """\
## How to read this

TS is temperature scaling, FTS focal temperature scaling (a temperature, then the focal map Psi), ETS ensemble
temperature scaling; the full grid and the line of FTS are searched by AdaECE.
ECE and AdaECE have 15 bins; debiased ECE takes off what noise adds; sweep ECE chooses the number of bins.
NLL is in nats. No calibrator saw the test rows.
TS by ECE searches T in steps of 0.1 (mukhoti2020), TS and FTS by AdaECE in steps of 0.01 (komisarenko2024).
Intervals are about other test rows for the same network, not about other seeds.
Losses of one task share their rows, so the sign test takes for independent what is not quite.
"""


def page(evidence: All) -> str:
    """The page's Markdown."""
    if not all_of(evidence):
        return f"# {TITLE}\n\nThere are no results.\n"
    sections = (section(evidence) for section in _SECTIONS)
    parts = [f"# {TITLE}\n", _opening(evidence), *sections, _reading(evidence)]
    return "\n".join(part for part in parts if part)


def _opening(evidence: All) -> str:
    found, networks = trained(evidence), published(evidence)
    runs = runs_of(found)
    text = f"{len(runs)} runs, of {sum(len(each.methods) for each in found)} pairs of loss and task,"
    text += f" and {len(networks[0].runs)} published networks" if networks else ""
    text += " were calibrated on validation rows and measured on test rows.\n"
    text += ranks_sentence(runs) + focal_count(found) + line_verdict(found, "ece_em", short=True)
    there = {each.name for each in (*found, *networks)}
    missing = [TITLES[name] for name in (*IMAGES, *TEXT, NETWORKS) if name not in there]
    return text + (f"Left out, because there are no results: {listed(missing)}.\n" if missing else "")


def _reading(evidence: All) -> str:
    far, of = outside(runs_of(all_of(evidence)))
    if not far:
        return _READING
    return (
        f"{_READING}Resampling adds noise, which raises a small ECE more than a large one: in"
        f" {count(far, of, 'difference')} of ECEs the measured value is outside its own interval.\n"
    )
