"""A stage in words and numbers: what `plan` prints before a row is read.

In: a calibrated stage and, where declared, a guess about a typical partition. Out: JSON values. Holds: public numbers only;
`stddev` is null where the error depends on released numbers, as for a mean.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dp_pipelines.auto_bounds import partition_bound, value_bounds
from dp_pipelines.kernels.lattice import Lattice, SummandLattice
from dp_pipelines.kernels.statistics import RowCount, Statistic
from dp_pipelines.mechanisms.by_statistic import mechanism_of
from dp_pipelines.metrics.base import ROWS, UNITS, Metric, Noisy
from dp_pipelines.metrics.error_bars import deviations_in_bar
from dp_pipelines.metrics.lookup_bound import PartitionScale
from dp_pipelines.noise import correlation
from dp_pipelines.plan_stages.reads import Groups, Rows, UnitFacts, UnitPartitionCounts
from dp_pipelines.planning import json_digest, limits, reserve, resolve
from dp_pipelines.planning.noise_levels import passing_noise, training_noise
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.query.federate_model import FederateModel, Rounds
from dp_pipelines.query.large_list import LargeList
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.query import PublicPartitions, Query, ReleasedPartitions
from dp_pipelines.query.train_model import EVALUATED, HALF, TrainModel
from dp_pipelines.query.windows import Windows

if TYPE_CHECKING:
    from dp_pipelines.planning.plan import Expectation


def asked_to_json(asked: Query | TrainModel) -> dict[str, Any]:
    """Return the whole request of a stage as JSON values.

    Open settings of a train stage are written as in versions that had only one choice, so that their frozen plans still
    match; `Plan.restore` distinguishes requests for that choice.
    """
    if isinstance(asked, Query):
        return query_to_json(asked)
    if asked.weighting is None and asked.evaluation_examples is None:
        asked = dataclasses.replace(asked, evaluation_examples=EVALUATED)
    return task_to_json(asked)


def query_to_json(query: Query) -> dict[str, Any]:
    """Return a whole query as JSON values in a fixed order.

    A long list of public keys is left unchanged; `json_digest` knows its text.
    """
    fields = {f.name: getattr(query, f.name) for f in dataclasses.fields(query)}
    fields["privacy_unit"], fields["partition_by"] = list(query.unit_columns), list(query.partition_columns)
    fields["bounds"] = dataclasses.asdict(query.bounds)
    for field in ("partition_candidates", "row_candidates"):
        if fields["bounds"][field] is None:  # plans without it keep their digests
            del fields["bounds"][field]
    fields["metrics"] = {name: _metric_to_json(metric) for name, metric in query.metrics.items()}
    if query.group is None:
        del fields["group"]
    for field in ("rollup", "level", "parties"):  # as above
        value = fields.pop(field)
        if value is not None:
            fields[field] = dataclasses.asdict(value)
    del fields["windows"]  # a plan says them by stage: its queries are plain
    if query.kept is None:
        del fields["kept"]
    else:
        fields["kept"] = dataclasses.asdict(query.kept)
        for field in ("each_metric", "clamped", "summed"):  # plans without them keep their digests
            if not fields["kept"][field]:
                del fields["kept"][field]
    if query.compare is None:  # plans without it keep their digests
        del fields["compare"]
    else:
        fields["compare"] = dataclasses.asdict(query.compare) | {"baseline": repr(query.compare.baseline)}
    fields["top"] = None if query.top is None else dataclasses.asdict(query.top)
    if query.best is None:
        del fields["best"]
    else:
        by = _metric_to_json(query.best.metric)
        fields["best"] = {"k": query.best.k, "mechanism": query.best.mechanism, "by": by}
    if isinstance(query.partitions, ReleasedPartitions):
        fields["partitions"] = {"released": list(query.partitions.stages)}
    elif isinstance(query.partitions, LargeList):
        conditions = [dataclasses.asdict(condition) for condition in query.partitions.conditions]
        for condition in conditions:  # an end that is none has no JSON
            condition |= {end: repr(condition[end]) for end in ("low", "high")}
        fields["partitions"] = {"sorted_list": query.partitions.keys.digest, "having": conditions}
    elif isinstance(query.partitions, PublicPartitions):
        other = {"other": True} if query.partitions.other else {}  # plans without it keep their digests
        fields["partitions"] = {"public": json_digest.keys_to_json(query.partitions.keys), **other}
    else:
        fields["partitions"] = {"private": dataclasses.asdict(query.partitions)}
    return fields


def parties_to_json(queries: Mapping[str, Query]) -> dict[str, Any]:
    """Return the entry `parties` of a plan's description; empty if there is only one organisation."""
    parties = next((query.parties for query in queries.values() if query.parties is not None), None)
    return {} if parties is None else {"parties": parties.to_json()}


def windows_to_json(windows: Windows) -> dict[str, Any]:
    """Return a declaration of windows as JSON values."""
    return {**dataclasses.asdict(windows), "first": str(windows.first), "size": windows.size_micros}


def _metric_to_json(metric: Metric) -> dict[str, Any]:
    fields = {"kind": type(metric).__name__, **dataclasses.asdict(metric)}
    if fields.get("within", ()) is None:  # plans without it keep their digests
        del fields["within"]
    if (parts := fields.pop("parts", None)) is not None:  # as above
        fields["parts"] = [str(part) for part in parts]
    for name, nothing in (("separation", None), ("coefficients", ())):  # as above
        if name in fields and fields[name] == nothing:
            del fields[name]
    for name in ("weight_column", "max_weight"):  # as above; in a plan a weighted mean is two sums
        fields.pop(name, None)
    if fields.get("shrink") is False:  # as above
        del fields["shrink"]
    if fields.get("categories") is not None:  # with their types, as public keys are: not every value is one of JSON's
        fields["categories"] = [f"{type(value).__name__}:{value!r}" for value in fields["categories"]]
    return fields


def task_to_json(task: TrainModel) -> dict[str, Any]:
    """Return a whole train stage as JSON values in a fixed order. Values have their types next to them."""
    kinds = [type(part).__name__ for part in (task.label, task.model)]
    if task.steps.average is None and not isinstance(
        task, PateModel
    ):  # it costs nothing, and plans of versions that knew one answer keep their digests
        task = dataclasses.replace(task, steps=dataclasses.replace(task.steps, average=HALF))
    fields = {**_typed(dataclasses.asdict(dataclasses.replace(task, features={**task.features}))), "kinds": kinds}
    if task.steps.candidates is None:  # plans without it keep their digests
        del fields["steps"]["candidates"]
    else:
        fields["steps"]["candidates"] = [_typed(candidate.given) for candidate in task.steps.candidates]
    for name in ("weighting", "evaluation_by"):  # plans without them keep their digests
        if getattr(task, name) is None:
            del fields[name]
    if not task.pairs:  # as above
        del fields["pairs"]
    for name in ("l2", "class_weights"):  # as above
        if getattr(task.steps, name) is None:
            del fields["steps"][name]
    if isinstance(task.steps, Rounds) and task.steps.separation is None:  # as above: noise is then independent
        del fields["steps"]["separation"], fields["steps"]["noise"]
    fields["features"] = [
        [name, type(feature).__name__, _typed(dataclasses.asdict(feature))] for name, feature in task.features.items()
    ]
    return fields


def _typed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_typed(item) for item in value]
    return value if value is None or isinstance(value, str) else f"{type(value).__name__}:{value!r}"


def sums_to_json(stage: StagePlan, share: float, task: TrainModel | None) -> dict[str, Any]:
    """Describe a stage of clipped sums as `plan --json` shows it: steps, answers of teachers, or releases before them."""
    (vectors,) = stage.sums
    described: dict[str, Any] = {
        "name": stage.name,
        "kind": "aggregate" if task is None else task.kind,
        "share": share,
        "metrics": {},
        "selection": {"strategy": "public", "threshold": None, "half_keep_users": None},
        "coordinates": vectors.size,
        "steps": vectors.times,
        "sampling_rate": vectors.rate,
        "noise_multiplier": float(training_noise.multiplier(stage)),
    }
    if task is not None:
        described |= {"clip_norm": task.steps.clip_norm, "held_out": task.held_out, "features": task.width}
        if isinstance(task, FederateModel):
            rounds = task.steps
            described |= {name: getattr(rounds, name) for name in ("method", "participation", "schedule")}
            described["sampling_rate"] = rounds.sampling_rate
            described["expected_clients"] = task.expected_clients
            described["noise_by_round"] = [float(each) for each in training_noise.multipliers(stage)]
            if rounds.separation is not None:
                described |= _of_groups(rounds)
        if task.pairs:
            both = zip(task.pairs, task.columns_of_pairs, strict=True)
            described["pairs"] = [{"features": list(pair), "columns": columns} for pair, columns in both]
        described["label"] = task.label.rule
        described["weighting"] = limits.weighting(task)
        described["limits"] = limits.in_words(task)
    return described


def _of_groups(rounds: Rounds) -> dict[str, Any]:
    """Return how often a client takes part, and the error of correlated noise over that of independent noise."""
    chosen = rounds.correlation
    assert rounds.separation is not None
    entry = {
        "separation": rounds.separation,
        "most_rounds_of_client": -(-rounds.steps // rounds.separation),
        "noise_of_rounds": "independent" if chosen is None or not chosen.coefficients else "correlated",
    }
    if chosen is None:
        return entry
    return entry | {
        "noise_coefficients": [coefficient / correlation.ONE for coefficient in chosen.coefficients],
        "error_beside_independent": {"published_models": chosen.published, "result": chosen.result},
    }


def stage_to_json(stage: StagePlan, share: float, expect: "Expectation | None") -> dict[str, Any]:
    """Return a stage as `plan --json` shows it."""
    noises = {s.name: n for s, n in zip(stage.statistics, stage.noises, strict=True) if n is not None}
    metrics = {}
    for name, metric in stage.query.metrics.items():
        basis = stage.basis(metric)
        laws = {statistic.name: _law(stage, statistic) for statistic in metric.statistics(basis)}
        metrics[name] = {
            "noise": "+".join(dict.fromkeys(laws.values())),
            "stddev": _constant_stddev(stage, metric),
            "statistics": {
                statistic.name: {
                    "noise": laws[statistic.name],
                    "stddev": None if statistic.decided else noises[statistic.name].stddev,
                }
                for statistic in metric.statistics(basis)
            },
        }
        if metric.pools:
            metrics[name]["shrunk"] = True
        if stage.query.bounds.auto:
            _per_contribution(metrics[name], stage, metric)
        if metric.auto:
            _as_multiples(metrics[name], metric)
        if metric.scale is not None:
            _by_clamp(metrics[name], metric.scale)
        if metric.auto or metric.scale is not None or stage.query.bounds.auto:
            continue
        guess = _guess(stage, metric, expect)
        if guess is not None:
            metrics[name]["expected_stddev"], metrics[name]["expected_relative_error"] = guess
    described: dict[str, Any] = {"name": stage.name, "kind": "aggregate", "share": share, "metrics": metrics}
    if isinstance(stage.kind, BestKind):
        described["selection"] = _best(stage, stage.kind)
    elif isinstance(stage.query.partitions, ReleasedPartitions):
        # The rounds that select them are stages of their own in the plan.
        described["selection"] = {"strategy": "sips", "threshold": None, "half_keep_users": None}
    elif stage.selection is None:
        described["selection"] = {"strategy": "public", "threshold": None, "half_keep_users": None}
        if stage.query.is_total:
            described["selection"]["total"] = True
        if stage.query.other_column is not None:
            described["selection"]["other"] = stage.query.other_column
    else:
        described["selection"] = {
            "strategy": stage.selection.strategy,
            "threshold": stage.threshold_users,
            "half_keep_users": stage.half_keep_users,
            "min_users": stage.selection.min_users,
            "compares_released_count": stage.selection.released,
            "failure_delta": stage.choices.selection_delta,
        }
    if stage.query.rolled is not None:
        levels = [list(level) for level in stage.query.rolled.levels]
        described["rollup"] = {"levels": levels, "shares": list(stage.query.rolled.weights)}
    if stage.query.level is not None:
        described["level"] = stage.query.level.number
    listed = passing_noise.described(stage, expect)
    if listed is not None:
        described[passing_noise.ENTRY] = listed
    bounds = stage.query.bounds
    if bounds.auto_partitions:
        described["partition_candidates"] = list(bounds.candidates)
        described["selection"] |= {"threshold": None, "half_keep_users": None}
        if stage.selection is not None:
            described["selection"]["half_keep_users_by_bound"] = _half_keep_by_bound(stage)
    if bounds.row_candidates is not None:
        described["row_candidates"] = list(bounds.row_candidates)
    if isinstance(stage.reads, (Groups, UnitPartitionCounts)):
        described["histograms_of"] = stage.reads.of
    if isinstance(stage.reads, UnitPartitionCounts):
        described["units_by_size"] = _units_by_size(stage)
    if isinstance(stage.reads, Rows) and stage.reads.of == stage.name:
        described["limits"] = limits.in_words(stage.query)
    if isinstance(stage.reads, UnitFacts):
        described["kept"] = _kept(stage)
    return described


def _kept(stage: StagePlan) -> dict[str, Any]:
    """Return how exact the shares are that bounds keep: the number of units from which they are within 5 percentage points.

    A share p of one count among others, all with noise of deviation s, is off by s sqrt((1 - p)^2 + k p^2) / N to first order,
    with k others: for any p by at most s sqrt(k) / N. Values have two others: below and above their clamps.
    """
    (noise,) = [noise for noise in stage.noises if noise is not None]
    (law,) = {choice.law for choice in stage.choices.noises.values()}
    return {
        "of": stage.reads.of,
        "stddev": noise.stddev,
        "units_within_5_percent": deviations_in_bar(law) * noise.stddev * 2**0.5 / 0.05,
    }


def _half_keep_by_bound(stage: StagePlan) -> dict[str, int | None]:
    """Return how many users a partition needs to be kept as often as not, with the smallest and the largest bound.

    The bounds are those on partitions.
    """
    bounds = stage.query.bounds
    rows = None if bounds.row_candidates is None else bounds.row_candidates[-1]
    ready = {
        bound: resolve.with_partitions(stage, bound, rows) for bound in (bounds.candidates[0], bounds.candidates[-1])
    }
    return {
        str(bound): None if (half := one.half_keep_users) is None else math.ceil(half) for bound, one in ready.items()
    }


def _units_by_size(stage: StagePlan) -> dict[str, Any]:
    """Return the precision of the histograms by which a run chooses bounds: how many units a cell needs to exceed the noise."""
    least = 0.0
    for metric in stage.query.metrics.values():
        (statistic,) = metric.statistics(stage.basis(metric))
        noise, cells = stage.noises[stage.statistics.index(statistic)], statistic.cells
        assert noise is not None
        assert cells is not None
        law = stage.choices.noises[statistic.name].law
        out = value_bounds.stands_out(cells.count, noise.stddev, law, partition_bound.FALSE_ALARM)
        least = max(least, out)
    return {"of": stage.reads.of, "units_seen_from": math.ceil(least)}


def _per_contribution(described: dict[str, Any], stage: StagePlan, metric: Metric) -> None:
    """Describe noise as it is with contribution bounds of 1, and how it grows with them, if these are not chosen yet."""
    bounds, statistics = stage.query.bounds, described["statistics"]
    most = bounds.max_partitions, bounds.max_rows_per_partition
    growths = {
        s.name: reserve.growth(s, statistics[s.name]["noise"], partitions=bounds.auto_partitions, rows=bounds.auto_rows)
        for s in metric.statistics(stage.basis(metric))
    }
    if not any(growth.words for growth in growths.values()):
        return  # e.g. numbers of units, if the bound on rows alone is open
    for name, growth in growths.items():
        statistics[name]["stddev_multiple"] = statistics[name]["stddev"] / growth.at(*most)
        statistics[name]["stddev"] = None
    stddev, (growth, *others) = described["stddev"], dict.fromkeys(growths.values())
    described["stddev"] = None
    known = stddev is not None and not others  # noises of two laws grow apart
    described["stddev_multiple"] = stddev / growth.at(*most) if known else None
    described["grows_with"] = growth.words if known else None


def _as_multiples(described: dict[str, Any], metric: Metric) -> None:
    """Describe noise per unit of the largest magnitude of a bound, if bounds are not chosen yet."""
    assert metric.family is not None
    _, low, high = metric.family
    largest = max(abs(low), abs(high))
    stddev = described.get("stddev_multiple", described["stddev"])
    described["stddev"], described["within"] = None, [low, high]
    described["stddev_multiple"] = None if stddev is None else stddev / largest
    for statistic, noise in described["statistics"].items():
        if " in [" in statistic:
            noise["stddev"] = None
            noise.pop("stddev_multiple", None)


def _by_clamp(described: dict[str, Any], scale: PartitionScale) -> None:
    """Describe noise per unit of the clamp, if that differs by partition."""
    described.setdefault("stddev_multiple", described["stddev"])
    known = described["stddev_multiple"] is not None  # of a variance, noise grows with the square
    described["stddev"] = None
    described["clamp"] = {**scale.to_json(), "noise_grows_with": scale.grows_with if known else None}


def _law(stage: StagePlan, statistic: Statistic) -> str:
    return mechanism_of(statistic).words or stage.choices.noises[statistic.name].law


def _best(stage: StagePlan, kind: BestKind) -> dict[str, Any]:
    """Describe the choice of the best public partitions; 19 times of 20 it is at most `error_95` behind the best one left."""
    choice, epsilon = kind.choice, stage.choices.selection_epsilon
    return {
        "strategy": choice.mechanism,
        "threshold": None,
        "half_keep_users": None,
        "k": choice.k,
        "by": choice.statistic.name,
        "candidates": kind.candidates,
        "epsilon_of_each": epsilon,
        "error_95": choice.error_95(epsilon, kind.candidates),
    }


def _noisy(stage: StagePlan, values: dict[str, float]) -> dict[Any, Noisy]:
    return {
        statistic: Noisy(
            values=np.full((1, statistic.width) if statistic.width else 1, values.get(statistic.name, values["sums"])),
            stddev=noise.stddev,
        )
        for statistic, noise in zip(stage.statistics, stage.noises, strict=True)
        if noise is not None
    }


def _constant_stddev(stage: StagePlan, metric: Metric) -> float | None:
    if not metric.stddev_is_public:
        return None
    stddevs = metric.finish(_noisy(stage, {"sums": 0.0}), stage.basis(metric))[1]
    # Of a matrix each entry has its own unit, and there is no one number.
    return float(stddevs.flat[0]) if bool((stddevs == stddevs.flat[0]).all()) else None


def _guess(stage: StagePlan, metric: Metric, expect: "Expectation | None") -> tuple[float, float | None] | None:
    """Return the expected error in a partition of the declared size, with values that are spread evenly over their range."""
    over_cells = any(statistic.width for statistic in metric.statistics(stage.basis(metric)))
    if expect is None or expect.rows_per_partition is None or over_cells:
        return None
    rows = expect.rows_per_partition
    values = {ROWS.name: rows, UNITS.name: expect.users or rows}
    basis = stage.basis(metric)
    for statistic in metric.statistics(basis):
        if isinstance(statistic, RowCount):
            values[statistic.name] = rows
        elif statistic.lattice is not None:
            values[statistic.name] = rows * _average(statistic.lattice)
    released, stddevs = metric.finish(_noisy(stage, {"sums": 0.0, **values}), basis)
    stddev, value = float(stddevs[0]), abs(float(released[0]))
    return stddev, stddev / value if value > 0 else None


def _average(lattice: Lattice | SummandLattice) -> float:
    """Return the average that a value adds to a sum, if values are spread evenly over the range.

    >>> _average(Lattice.for_values(0.0, 10.0)), round(_average(Lattice.for_squares(0.0, 10.0)), 6)
    (5.0, 33.333333)
    """
    middle, width = lattice.low / 2 + lattice.high / 2, lattice.high - lattice.low
    if isinstance(lattice, Lattice) and lattice.square:
        return (middle - lattice.centre) ** 2 + width * width / 12 - lattice.square_centre
    return middle - lattice.offset
