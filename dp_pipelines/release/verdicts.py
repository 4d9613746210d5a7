"""Verdicts on the numbers of a release, one line for each metric, so that noise is not read as news.

In: a released table and the manifest's entry of its stage (any part of it may be missing). Out: a `Verdict` for each metric that
declares how it is judged; the numbers whose error bar covers all possible values. Holds: computed from released numbers and
public parameters alone, so it costs nothing. A published deviation is capped at half of the range: no comparison here comes out
otherwise without the cap. Not covered: models, which have measures of their own, and numbers without an error bar.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from numpy.typing import NDArray

from dp_pipelines.kernels.lattice import Flags, Floats
from dp_pipelines.metrics import registry, weighted_mean
from dp_pipelines.metrics.base import RAW, UNITS, Judged
from dp_pipelines.metrics.error_bars import ERROR_BAR, deviations_in_bar
from dp_pipelines.metrics.weighted_mean import SumPair
from dp_pipelines.planning.noise_levels import passing_noise
from dp_pipelines.release import finest_rows, shown_rows

CHANCE = 0.05
"""The part of numbers that noise alone takes beyond their error bar where the true number is 0."""

NARROW = 4
"""A bar is narrow where it is shorter than the range over this."""

ADVICE = "ask for fewer partitions, a wider window or more budget"
ADVICE_ON_TOTALS = "ask for a wider window or more budget"

NOISE = "– (noise)"
"""The text in tables for a number whose error bar is as long as the range in which it must lie."""

NOISE_NOTE = f"{NOISE}: the error bar is as long as the whole range"

SELECTED = (
    "'by chance' assumes that every true number is 0; published groups have many units, so expect most of their numbers to "
    "differ"
)
"""The meaning of the chance figure if the published partitions were selected."""


ROLLED_UP = "counted are the finest groups, by their numbers before these were made to add up"
"""The note on the verdicts of a rollup."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """The count of a metric's numbers that clearly exceed the noise.

    Args:
        judged: with what the error bars were compared.
        numbers: how many finite numbers with an error bar there are; each place of a list is one.
        clear: how many of them exceed the noise.
        by_chance: how many would differ from zero if noise were all there is; None if that does not apply.
        words: one line for readers.
    """

    judged: Judged
    numbers: int
    clear: int
    by_chance: float | None
    words: str

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as the manifest has it."""
        return dataclasses.asdict(self)


def of_stage(table: pa.Table, stage: Mapping[str, Any]) -> dict[str, Verdict]:
    """Return the verdict on each metric of a stage, by its name, in the order of the table.

    Args:
        table: the released table.
        stage: its entry in the manifest; what is missing there gets no verdict.

    >>> table = pa.table({"n": [9.0, -1.0, 2.0], "n_stddev": [1.0, 1.0, 2.0]})
    >>> of_stage(table, {"metrics": {"n": {"kind": "count"}}})["n"].words
    '1 of 3 differs from zero; 0.2 would by chance: ask for fewer partitions, a wider window or more budget'
    """
    metrics, by_metric = _mapping(stage.get("metrics")), dict[str, Verdict]()
    table, rolled = finest_rows.of(table, stage), finest_rows.is_rollup(stage)
    large = _mapping(stage.get(passing_noise.ENTRY))
    if large:
        return {name: _beside_noise(table.num_rows, large) for name in large["metrics"] if name in table.column_names}
    means = {} if rolled else _weighted_means(table, stage)
    of_means = {name for _, pair in means.items() for name in (pair.weighted, pair.weights)}
    for name in table.column_names:
        if name in means:
            by_metric |= _of_weighted_mean(table, means[name], stage)
        if name in of_means:  # a mean in the middle of its range has a sum near zero
            continue
        # Of a rollup the numbers as they were drawn: where zero was the least, bars of what adds up are not about zero.
        entry, drawn = _mapping(metrics.get(name)), f"{name}{RAW}" if rolled else name
        bars, metric = f"{drawn}_stddev", registry.of_kind(entry.get("kind"))
        if metric is None or metric.judged is None or bars not in table.column_names or "raw_of" in entry:
            continue
        values, stddevs = _numbers(table.column(drawn)), _numbers(table.column(bars))
        if len(values) != len(stddevs):
            continue
        known = np.isfinite(values) & np.isfinite(stddevs)
        verdict = JUDGES[metric.judged](values[known], stddevs[known], entry, stage) if known.any() else None
        if verdict is not None:
            by_metric[name] = verdict
    return by_metric


def _weighted_means(table: pa.Table, stage: Mapping[str, Any]) -> dict[str, SumPair]:
    """Return the weighted means whose sums a table has, by the first of their columns."""
    found = {}
    for pair in weighted_mean.released_pairs(_mapping(stage.get("metrics"))):
        columns = [part for name in (pair.weighted, pair.weights) for part in (name, f"{name}_stddev")]
        if {*columns} <= {*table.column_names}:
            found[min(columns, key=table.column_names.index)] = pair
    return found


def _of_weighted_mean(table: pa.Table, pair: SumPair, stage: Mapping[str, Any]) -> dict[str, Verdict]:
    """Return the verdict on a weighted mean, by its name: how many error bars are short compared with its range."""
    both = [_numbers(table.column(part)) for name in (pair.weighted, pair.weights) for part in (name, f"{name}_stddev")]
    with np.errstate(all="ignore"):
        values, stddevs = pair.mean_of(*both)
    known = np.isfinite(values) & np.isfinite(stddevs)
    entry = _mapping(_mapping(stage.get("metrics")).get(pair.weighted))
    as_mean = {"range": [pair.low, pair.high], "noise": entry.get("noise")}
    verdict = _against_range(values[known], stddevs[known], as_mean, stage) if known.any() else None
    return {} if verdict is None else {pair.name: verdict}


def told(table: pa.Table, stage: Mapping[str, Any]) -> dict[str, Verdict]:
    """Return the verdicts on a published table, and further advice, on all released rows, even if `having` left some out.

    Args:
        table: the published table.
        stage: its entry in the manifest, which has the verdicts on all rows.

    >>> said = {"judged": "zero", "numbers": 9, "clear": 3, "by_chance": 0.5, "words": "of all 9 groups, 3 differ from zero"}
    >>> stage = {"shown": {"groups": 9, "rows": 1, "order_by": [], "words": []}, "metrics": {"n": {"verdict": said}}}
    >>> told(pa.table({"n": [1.0]}), stage)["n"].words
    'of all 9 groups, 3 differ from zero'
    """
    metrics = _mapping(stage.get("metrics"))
    if _left_out(stage) is None:
        by_metric = of_stage(table, stage)
    else:
        read = {name: _read(_mapping(_mapping(metrics.get(name)).get("verdict"))) for name in table.column_names}
        by_metric = {name: verdict for name, verdict in read.items() if verdict is not None}
    return {
        name: dataclasses.replace(
            verdict, words=verdict.words + _advice_on_values(verdict, _mapping(metrics.get(name)))
        )
        for name, verdict in by_metric.items()
    }


def _advice_on_values(verdict: Verdict, entry: Mapping[str, Any]) -> str:
    """Return what else helps a metric of a column most of whose numbers do not pass: the manifest has the advice on its stage.

    >>> short = Verdict(judged="zero", numbers=9, clear=1, by_chance=0.5, words="")
    >>> _advice_on_values(short, {"statistics": {"sum(price in [0.0, 60.0], values)": {}}})
    ', or a narrower clamp of its values; a null adds nothing, so check the type that its column is declared with'
    >>> _advice_on_values(short, {"statistics": {"rows": {}}})
    ''
    """
    statistics = [str(name) for name in _mapping(entry.get("statistics"))]
    if 2 * verdict.clear >= verdict.numbers or not any("(" in name for name in statistics):
        return ""
    sums = any(name.startswith("sum(") for name in statistics)
    # An error bar is as long compared with a narrower range; a clamp that the run chooses is not one of the job.
    clamp = ", or a narrower clamp of its values" if sums and verdict.judged == "zero" and "bounds" not in entry else ""
    return f"{clamp}; a null adds nothing, so check the type that its column is declared with"


def _beside_noise(published: int, large: Mapping[str, Any]) -> Verdict:
    """Count the published partitions of a large list, and those that noise alone has put there.

    >>> _beside_noise(3000, {"keys": 10**6, "by_noise": 1349.5, "having": "n >= 30"}).words
    '3,000 of 1,000,000 listed partitions pass n >= 30; at most 1,350 would by noise alone, on average'
    """
    noise = passing_noise.shown_number(large["by_noise"])
    sentence = f"{published:,} of {large['keys']:,} listed partitions pass {large['having']}"
    sentence += f"; at most {noise} would by noise alone, on average"
    clear = max(0, published - int(np.ceil(large["by_noise"])))
    return Verdict(judged="zero", numbers=published, clear=clear, by_chance=round(large["by_noise"], 2), words=sentence)


def _read(said: Mapping[str, Any]) -> Verdict | None:
    """Return a verdict from the manifest; None if it is damaged."""
    words, chance = said.get("words"), said.get("by_chance")
    judged = next((known for known in JUDGES if known == said.get("judged")), None)
    numbers, clear = (count if type(count) is int else -1 for count in (said.get("numbers"), said.get("clear")))
    if judged is None or not isinstance(words, str) or min(numbers, clear) < 0:
        return None
    by_chance = float(chance) if isinstance(chance, int | float) and abs(chance) < 1e18 else None
    return Verdict(judged=judged, numbers=numbers, clear=clear, by_chance=by_chance, words=words)


def _left_out(stage: Mapping[str, Any]) -> shown_rows.ShownPart | None:
    """Return the manifest's entry about a stage whose table leaves released rows out; None for other stages."""
    part = shown_rows.read_part(stage)
    return part if part is not None and part.rows < part.groups else None


def with_verdicts(stages: Sequence[Mapping[str, Any]], files: Mapping[str, pathlib.Path]) -> list[dict[str, Any]]:
    """Return the entries of a manifest with the verdict on each metric that gets one.

    Args:
        stages: the entries.
        files: the staged files of the release by name.
    """
    described = []
    for stage in stages:
        path = files.get(f"{stage['name']}.parquet")
        if path is None:
            described.append(dict(stage))
            continue
        with pyarrow.parquet.ParquetFile(path) as file:
            by_metric = of_stage(file.read(), stage)
        entries = {name: {"verdict": verdict.to_json()} for name, verdict in by_metric.items()}
        described.append(
            {**stage, "metrics": {name: {**entry, **entries.get(name, {})} for name, entry in stage["metrics"].items()}}
        )
    return described


def note(found: Mapping[str, Verdict], stage: Mapping[str, Any]) -> str:
    """Return the note on the chance figures of a stage's verdicts; empty if there is none.

    Args:
        found: the verdicts by metric.
        stage: its entry in the manifest.

    >>> note({}, {})
    ''
    """
    chances = any(verdict.by_chance is not None for verdict in found.values())
    sentences = [ROLLED_UP] if found and finest_rows.is_rollup(stage) else []
    return "; ".join([*sentences, *([SELECTED] if chances and is_selected(stage) else [])])


def is_selected(stage: Mapping[str, Any]) -> bool:
    """Return True if the published partitions of a stage were selected by the units in them.

    >>> is_selected({"selection": {"strategy": "gaussian"}}), is_selected({"selection": {"strategy": "public"}})
    (True, False)
    """
    selection = _mapping(stage.get("selection"))
    return bool(selection) and selection.get("strategy") != "public" and "candidates" not in selection


WHAT_HELPS = (
    "Use larger groups or more rows, tighter bounds, or a larger budget; and check the declared types and formats: a cell that "
    "does not fit its type is null, and rows without a unit are dropped"
)
"""Advice if no group was large enough, or groups were read in an unintended way."""


def nothing_published(stage: Mapping[str, Any], narrowed_by: Sequence[str] = (), units: str = "units") -> str:
    """Return the text about a stage that published no partition.

    Args:
        stage: its entry in the manifest.
        narrowed_by: the keys of the job that decide which rows are read, in words.
        units: what several privacy units are called.

    >>> nothing_published({}, ["where", "week = 2026-W01"])
    'no group was published. Look also at where and week = 2026-W01: they decide which rows are read, and may leave few'
    >>> nothing_published({"selection": {"strategy": "gaussian", "half_keep_users": 65.2}})[:55]
    'no group was published: a group needs about 66 units. U'
    """
    half = _mapping(stage.get("selection")).get("half_keep_users")
    part = _left_out(stage)
    if part is not None:
        return "no group is shown: none of those that were released passes the condition of the job"
    sentence, rows = "no group was published", ""
    if narrowed_by:
        decide = "they decide" if len(narrowed_by) > 1 else "it decides"
        rows = f". Look also at {' and '.join(narrowed_by)}: {decide} which rows are read, and may leave few"
    if isinstance(half, bool) or not isinstance(half, int | float) or not 0 < half < 1e18:
        return f"{sentence}{rows}"
    return f"{sentence}: a group needs about {int(np.ceil(half)):,} {units}. {WHAT_HELPS}{rows}"


def range_of(entry: Mapping[str, Any]) -> tuple[float, float] | None:
    """Return the range in which the manifest says that the values of a metric lie; None where it says none.

    >>> range_of({"range": [0, 5]}), range_of({"range": [5, 0]}), range_of({})
    ((0.0, 5.0), None, None)
    """
    ends = entry.get("range")
    if not isinstance(ends, Sequence) or isinstance(ends, str) or len(ends) != 2:
        return None
    if not all(isinstance(end, int | float) and not isinstance(end, bool) and abs(end) < 1e301 for end in ends):
        return None
    low, high = float(ends[0]), float(ends[1])
    return (low, high) if low < high else None


def range_in_words(within: tuple[float, float]) -> str:
    """Format a range with as many digits as distinguish its ends.

    >>> range_in_words((0.0, 172.63349)), range_in_words((1.0, 1.0000001)), range_in_words((0.0, 1e6))
    ('0 … 172.6', '1 … 1.0000001', '0 … 1,000,000')
    """
    texts = [f"{float(f'{end:.4g}'):,.12g}" for end in within]
    return " … ".join(texts if texts[0] != texts[1] else [repr(end).removesuffix(".0") for end in within])


def covers(stddevs: Floats, within: tuple[float, float] | None) -> Flags:
    """Return True for error bars as long as the whole range, whose numbers say nothing; False if there is no range.

    Args:
        stddevs: of released numbers, capped or not: a capped one makes a bar of nearly twice the range. Of noise that is not
            normal those of normal noise with as long bars (`report.released_table`).
        within: the range.

    >>> covers(np.array([2.0, 1.1, 0.9]), (1.0, 5.0)).tolist()
    [True, True, False]
    """
    if within is None:
        return np.zeros(np.shape(stddevs), np.bool_)
    return np.asarray(2 * ERROR_BAR * stddevs >= within[1] - within[0])


def _deviations(entry: Mapping[str, Any]) -> float:
    """Return half the length of an error bar of a metric, in standard deviations."""
    return deviations_in_bar(str(entry.get("noise", "")))


Judge = Callable[[Floats, Floats, Mapping[str, Any], Mapping[str, Any]], Verdict | None]
"""A function of finite numbers, their deviations, and the entries of the metric and of its stage."""


def _against_zero(values: Floats, stddevs: Floats, entry: Mapping[str, Any], stage: Mapping[str, Any]) -> Verdict:
    """Count the numbers that differ from zero by more than their error bar."""
    count, clear = len(values), int(np.count_nonzero(np.abs(values) > _deviations(entry) * stddevs))
    sentence = f"{_counted(clear, count, stage)} {'differs' if clear == 1 else 'differ'} from zero"
    if is_selected(stage) and _selects(entry, stage):
        sentence += "; only groups where this number is large are published, so chance is no question"
        return Verdict(judged="zero", numbers=count, clear=clear, by_chance=None, words=sentence)
    chance = CHANCE * count
    sentence += f"; {_shown(chance)} would by chance" + _advice(clear, count, stage)
    return Verdict(judged="zero", numbers=count, clear=clear, by_chance=round(chance, 2), words=sentence)


def _against_range(
    values: Floats, stddevs: Floats, entry: Mapping[str, Any], stage: Mapping[str, Any]
) -> Verdict | None:
    """Count the error bars that are short compared with the range."""
    within = range_of(entry)
    if within is None:  # as in a manifest of version 0.1.0
        return None
    low, high = within
    count, clear = len(values), int(np.count_nonzero(2 * _deviations(entry) * stddevs < (high - low) / NARROW))
    bars = "error bar is" if clear == 1 else "error bars are"
    sentence = f"{_counted(clear, count, stage)} {bars} shorter than a quarter of the range {range_in_words(within)}"
    return Verdict(
        judged="range", numbers=count, clear=clear, by_chance=None, words=sentence + _advice(clear, count, stage)
    )


JUDGES: Mapping[Judged, Judge] = MappingProxyType({"zero": _against_zero, "range": _against_range})
"""Functions that judge a metric, by its declaration (`Metric.judged`)."""


def _selects(entry: Mapping[str, Any], stage: Mapping[str, Any]) -> bool:
    """Return True if the published number itself was compared with the threshold of selection."""
    return bool(_mapping(stage.get("selection")).get("compares_released_count")) and UNITS.name in _mapping(
        entry.get("statistics")
    )


def _counted(clear: int, count: int, stage: Mapping[str, Any]) -> str:
    """Return in words how many of how many numbers; if rows are left out, also that these are all groups."""
    part = _left_out(stage)
    if part is None or not stage.get("partition_by", True):
        return f"{clear:,} of {count:,}"
    of_all = f"{part.groups:,} group{'' if part.groups == 1 else 's'}"
    return f"of all {of_all}, {clear:,}" if part.groups == count else f"of {count:,} numbers of all {of_all}, {clear:,}"


def _advice(clear: int, count: int, stage: Mapping[str, Any]) -> str:
    if 2 * clear >= count:
        return ""
    return f": {ADVICE}" if stage.get("partition_by", True) else f": {ADVICE_ON_TOTALS}"


def _shown(chance: float) -> str:
    return f"{chance:.2f}" if chance < 0.1 else f"{chance:.1f}" if chance < 100 else f"{chance:,.0f}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    """Return the numbers of a column, or of the lists in it, NaN for null; none of a column of anything else."""
    kind = column.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        column, kind = pc.list_flatten(column), kind.value_type
    if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
        return np.zeros(0)
    return np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)
