"""`focalcal evaluate` and `focalcal calibrate` on streams, for more rows than memory holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from focalcal.cli.measure_tables import assessed
from focalcal.cli.results import AssessmentResult, Engine
from focalcal.cli.splits import SCORE_SPLITS, SplitOptions
from focalcal.errors import InputError
from focalcal.files import PredictionStream
from focalcal.files.derived_streams import share_of
from focalcal.files.discovery import find_shards
from focalcal.files.prediction_stream import OnBadShard
from focalcal.metrics import Evaluation, evaluate
from focalcal.predictions.stream import Stream
from focalcal.report.verdict import MeasureSettings, assess_evaluation

if TYPE_CHECKING:
    from focalcal.cli.console import Advance
    from focalcal.files import Columns

# Files of so many bytes together are streamed unless the caller says otherwise.
_LARGE = 256 << 20
STREAM_WAYS = (
    "Say which rows to fit to: --fit VAL_FILE with FILE to score, --fit-split val --score-split test, or --holdout 0.5."
)


def engine_for(wanted: str, files: Sequence[str], *, by: str | None = None) -> Engine:
    """How files are read: as wanted, or by their size."""
    if wanted == "memory" and by is not None:
        raise InputError("--by: groups are measured in a stream. Leave out --engine memory.")
    if wanted != "auto":
        return wanted  # type: ignore[return-value]
    if by is not None:
        return "stream"
    if "-" in files:
        return "memory"
    with ExitStack() as stack:
        size = sum(source.size for shard in find_shards(list(files), stack) for source in shard.sources)
    return "memory" if size < _LARGE else "stream"


@dataclass(frozen=True)
class StreamReader:
    """How streams are opened and where their passes run."""

    columns: Columns
    engine: Engine
    on_bad_shard: OnBadShard
    advance: Advance

    def open(self, files: list[str], split: str | None = None) -> PredictionStream:
        """The rows of files, or those of one split."""
        return PredictionStream(
            files, self.columns, split=split, on_bad_shard=self.on_bad_shard, progress=self._progress("reading")
        )

    def _progress(self, what: str) -> Callable[[int, int, str], object]:
        rows = 0

        def told(more: int, _: int, name: str) -> None:
            nonlocal rows
            rows += more
            self.advance(0, 0, f"{what} {name}: {rows:,} rows")

        return told

    def on(self, stream: Stream) -> Stream:
        """The stream where its passes run."""
        return stream.on("ray") if self.engine == "ray" else stream

    def measure(self, stream: Stream, how: MeasureSettings) -> tuple[AssessmentResult, Evaluation]:
        """What a pass over a stream measures."""
        evaluation = evaluate(self.on(stream), num_bins=how.num_bins)
        return assessed(assess_evaluation(evaluation, how.level)), evaluation


@dataclass(frozen=True)
class StreamEvaluation:
    """Rows that were measured as a whole, and by groups if that was asked for."""

    split: str | None
    evaluation: Evaluation
    groups: dict[str, Evaluation]


def measure_files(
    reader: StreamReader, stream: Stream, how: MeasureSettings, by: str | None, split: str | None
) -> StreamEvaluation:
    """All rows of a stream, or those of split test where there are several and none was named."""
    several = split is None and isinstance(stream, PredictionStream) and stream.reader.like.split is not None
    if several and by is not None:
        raise InputError(f"{stream.name}: has a split column. Name the split to group with --split.")
    column = (reader.columns.split or "split") if several else by
    if column is None:
        return StreamEvaluation(split, evaluate(reader.on(stream), num_bins=how.num_bins), {})
    grouped = evaluate(reader.on(stream), num_bins=how.num_bins, by=column)
    if not several:
        return StreamEvaluation(split, grouped.overall, dict(grouped))
    found = next(iter(grouped)) if len(grouped) == 1 else next((each for each in SCORE_SPLITS if each in grouped), None)
    if found is None:
        raise InputError(f"{stream.name}: has the splits {', '.join(grouped)}. Name one with --split.")
    return StreamEvaluation(found, grouped[found], {})


@dataclass(frozen=True)
class DividedStreams:
    """Rows to fit to and rows to score, and how they were chosen in words."""

    fit: Stream
    score: Stream | None
    words: str
    opened: tuple[PredictionStream, ...]
    same_data: bool = False

    @property
    def skipped(self) -> dict[str, str]:
        """Shards that were left out."""
        return {name: reason for stream in self.opened for name, reason in stream.skipped.items()}


def divide_streams(
    reader: StreamReader, score_files: list[str], fit_files: list[str], asked: SplitOptions
) -> DividedStreams:
    """The rows to fit to and those to score, from what was asked; which rows are shared is not known of streams."""
    if fit_files:
        fit = reader.open(fit_files, asked.fit_split)
        if not score_files:
            return DividedStreams(fit, None, f"fitted to {fit.name}; nothing was measured on other rows", (fit,))
        score = reader.open(score_files, asked.score_split or asked.split)
        return DividedStreams(fit, score, f"fitted to {fit.name}, scored on {score.name}", (fit, score))
    if asked.fit_split is not None and asked.score_split is not None:
        fit, score = (reader.open(score_files, split) for split in (asked.fit_split, asked.score_split))
        return DividedStreams(
            fit, score, f"fitted to split {asked.fit_split}, scored on split {asked.score_split}", (fit, score)
        )
    rows = reader.open(score_files, asked.split)
    if asked.holdout is not None:
        fitted, scored = (share_of(rows, asked.holdout, seed=asked.seed, rest=rest) for rest in (True, False))
        drawn = f"a random {100 * asked.holdout:g} % of the rows (seed {asked.seed})"
        return DividedStreams(fitted, scored, f"scored on {drawn}, fitted to all others", (rows,))
    if not asked.allow_same_data:
        raise InputError(f"{rows.name}: nothing says which rows to fit to and which to score. {STREAM_WAYS}")
    return DividedStreams(rows, rows, "fitted to and scored on the same rows", (rows,), same_data=True)
