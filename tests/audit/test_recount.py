"""What planning derives is counted a second time by the audit, from the job alone: a plan that says less is found.

In: plans, right ones and ones made by a planning with a planted fault. Out: findings. Holds: nothing is drawn. Not covered:
records told wrong one by one (`tests/audit/test_records.py`); how far kernels let a unit move a statistic (`tests/privacy`).
"""

import ast
import copy
import dataclasses
import importlib
import inspect
import itertools
import math
import pathlib
import pkgutil
from collections.abc import Iterator

import pyarrow as pa
import pytest

import dp_pipelines as dp
from dp_pipelines import ContributionBounds, Count, Plan, PrivacyIdCount, PublicPartitions, Query, Sum
from dp_pipelines.accounting import accountant
from dp_pipelines.audit import audit, decisions, records, recount, replay, worst
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels import statistics
from dp_pipelines.planning import stage as planned_stage
from dp_pipelines.query.large_list import Condition, LargeList
from dp_pipelines.release import unit_reach
from tests.audit.test_audit import BOUNDS
from tests.audit.test_records import PLANS, made
from tests.helpers.key_files import key_file
from tests.helpers.planted import plant

UNEVEN = [("n", week) for week in range(1, 9)] + [("s", 1), ("w", 1), ("w", 2)]
"""Partitions of three regions, with 8, 1 and 2 weeks."""


def rolled(keys: list[tuple[object, ...]] = UNEVEN, **changes: object) -> Query:
    """A rollup whose groups are of different sizes."""
    fields: dict[str, object] = {
        "privacy_unit": "who",
        "partition_by": ("region", "week"),
        "bounds": ContributionBounds(max_partitions_contributed=4, max_contributions_per_partition=2),
        "metrics": {"rows": Count(), "users": PrivacyIdCount(), "paid": Sum("paid", min_value=-5, max_value=10)},
        "partitions": PublicPartitions(keys=keys),
        "rollup": [[], ["region"], ["region", "week"]],
    }
    return Query(**{**fields, **changes})  # type: ignore[arg-type]


def plan(**stages: object) -> Plan:
    return Plan(epsilon=2.0, delta=1e-6, stages=stages)  # type: ignore[arg-type]


def wrong(of: Plan) -> dict[str, str]:
    """What is found wrong, by what it is."""
    ready = {name: audit._ready(stage) for name, stage in of.round(1).stages.items()}
    found = records.findings(of, ready)
    listed = [*itertools.chain.from_iterable(found.values()), *records.of_everything(of)]
    return {each.what: each.found for each in listed if each.evidence}


# What is right passes.


@pytest.mark.parametrize("kind", PLANS)
def test_totals_of_right_plans_are_what_all_their_records_cost(kind: str) -> None:
    found = records.of_everything(made(kind))
    assert [each.what for each in found] == ["total"]
    assert not found[0].evidence, found


def test_a_rollup_of_uneven_groups_is_counted_from_its_list() -> None:
    of = plan(weekly=rolled())
    assert wrong(of) == {}
    assert [(level.most_leaves, level.groups) for level in recount.levels(of).values()] == [(11, 1), (8, 3), (1, 11)]


def test_keys_that_are_equal_as_keys_are_in_one_group() -> None:
    keys = [(0.0, 1), (-0.0, 2), (math.nan, 1), (float("nan"), 2), (None, 3), (1.5, 4)]
    of = plan(weekly=rolled(keys))
    assert wrong(of) == {}
    level = recount.levels(of)["weekly.level1"]
    assert (level.groups, level.most_leaves) == (3, 3)  # 0, 1.5 and null, which NaN is too


def test_a_list_on_disk_bounds_groups_and_no_fan_out(tmp_path: pathlib.Path) -> None:
    regions, weeks = zip(*sorted(UNEVEN), strict=True)
    listed = key_file(tmp_path / "list", list(regions), pa.array(list(weeks), pa.int64()), bucket_keys=2, part_keys=4)
    large = LargeList(keys=listed, conditions=(Condition(metric="rows_raw", low=5.0),))
    of = plan(weekly=rolled(partitions=large))
    assert wrong(of) == {}
    assert [(level.most_leaves, level.groups) for level in recount.levels(of).values()] == [
        (None, 1),
        (None, 3),
        (1, 11),
    ]


# The second count is one of its own, and says the same.


BOUND_SETS = [
    *(
        ContributionBounds(max_partitions_contributed=partitions, max_contributions_per_partition=rows)
        for partitions in (1, 2, 7)
        for rows in (1, 3)
    ),
    ContributionBounds(max_contributions=1),
    ContributionBounds(max_contributions=5),
]
METRICS: dict[str, dp.Metric] = {
    "rows": dp.Count(),
    "users": dp.PrivacyIdCount(),
    "sum": dp.Sum("paid", min_value=-3, max_value=10),
    "clipped": dp.Sum("paid", min_sum_per_partition=-3, max_sum_per_partition=10),
    "distinct": dp.DistinctCount("paid"),
    "distinct_two": dp.DistinctCount("paid", max_values_per_partition=2),
    "mean": dp.Mean("paid", min_value=-3, max_value=10),
    "quantile": dp.Median("paid", min_value=-3, max_value=10),
    "moments": dp.SecondMoment(columns=["paid", "age"], max_norm=2.0),
    "moments_by_range": dp.SecondMoment(columns=["paid", "age"], bounds={"paid": (-3, 10), "age": (0, 90)}),
    "ranks": dp.Quantile("paid", quantile=0.5, candidates=[1, 2, 3], method="exponential"),
    "histogram": dp.Histogram("paid", edges=[0, 1, 2]),
    **{f"vector_{norm}": dp.VectorSum("embedding", size=3, norm=norm, max_norm=2.0) for norm in ("l1", "l2", "linf")},
}


def queries() -> Iterator[Query]:
    """Queries of every metric under every set of bounds, where they may be asked."""
    for bounds, (name, metric) in itertools.product(BOUND_SETS, METRICS.items()):
        try:
            yield Query(
                privacy_unit="who",
                partition_by="k",
                bounds=bounds,
                metrics={name: metric},
                partitions=PublicPartitions(keys=[("a",), ("b",)]),
            )
        except dp.RequestError:
            continue


def test_how_far_a_unit_moves_a_statistic_is_the_same_by_both_counts() -> None:
    seen = set()
    for query in queries():
        for statistic in planned_stage.released_statistics(query, ()).values():
            seen.add(type(statistic).__name__)
            mine, theirs = unit_reach.reach(statistic, query), planned_stage.shape_of(statistic, query)
            assert dataclasses.astuple(mine) == dataclasses.astuple(theirs), (statistic.name, query.bounds)
            for step, joined in itertools.product(
                (1, 7, 1 << 10, (1 << 20) - 1, 1 << 20, 3 << 20, 1 << 40), (False, True)
            ):
                assert mine.rounded(step, joined=joined) == theirs.steps(step, joined=joined)
            for steps, units in ((1, 1), (9, 1), (9, mine.per_coordinate)):
                assert mine.exactly(steps, units) == theirs.ideally(steps, units)
    assert seen >= {"RowCount", "UnitCount", "ValueSum", "ClippedUnitSum", "DistinctValues", "CellCounts", "VectorSums"}


def test_every_kind_of_statistic_is_known_to_the_audit() -> None:
    def kinds(of: type) -> Iterator[type]:
        yield of
        for each in of.__subclasses__():
            yield from kinds(each)

    normed = {statistics.UnitWeights}  # by selection, which bounds an L2 norm
    bases = {statistics.Statistic, statistics.ManySums}
    for module in pkgutil.walk_packages(dp.__path__, "dp_pipelines."):  # a class is known once its module is imported
        if module.name.startswith(("dp_pipelines.kernels.", "dp_pipelines.metrics.", "dp_pipelines.mechanisms.")):
            importlib.import_module(module.name)
    known = [kind for kind in kinds(statistics.Statistic) if kind.__module__.startswith("dp_pipelines.")]
    assert len(known) > 13
    unknown = {kind for kind in known if not issubclass(kind, tuple(unit_reach.REACHES))}
    assert unknown == normed | bases
    orders = list(unit_reach.REACHES)
    for place, kind in enumerate(orders):
        assert not any(issubclass(later, kind) for later in orders[place + 1 :]), "a subclass comes before its class"


@pytest.mark.parametrize("module", [recount, worst, records, decisions, replay])
def test_the_audit_asks_planning_for_no_sensitivity_and_no_fan_out(module: object) -> None:
    tree = ast.parse(inspect.getsource(module))  # type: ignore[arg-type]
    imported = {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("dp_pipelines.planning", "dp_pipelines.plan_stages"))
        for alias in node.names
    }
    assert not imported & {"shape_of", "reserve", "rollup_levels", "records_of", "candidate", "integer_noise", "choose"}
    read = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not read & {"shape", "ideally", "in_groups", "max_partitions", "max_rows_per_partition"} - (
        {"shape", "max_partitions", "max_rows_per_partition"} if module is recount else {"shape"}
    )


# What planning counts wrong is found.


def test_a_fan_out_taken_as_the_smallest_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "dp_pipelines.plan_stages.rollup_levels:_coarse", "int(leaves.max())", "int(leaves.min())")
    found = wrong(plan(weekly=rolled()))
    assert {"record of rows", "total"} <= set(found)
    assert "all records together cost" in found["total"]


def test_fewer_groups_than_the_list_has_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, "dp_pipelines.plan_stages.rollup_levels:_coarse", "groups=len(first)", "groups=1")
    assert {"record of rows", "total"} <= set(wrong(plan(weekly=rolled())))


@pytest.mark.parametrize(
    ("where", "old", "new"),
    [
        (
            "dp_pipelines.planning.noise_levels.integer_noise:records_of",
            "for n, query in queries.items()",
            "for n, query in list(queries.items())[:-1]",
        ),
        (
            "dp_pipelines.planning.plan:Plan._finish",
            "for r in records]",
            "for r in records if r.stage != 'second']",
        ),
    ],
)
def test_a_total_that_leaves_out_the_records_of_a_stage_is_found(
    where: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Query(
        privacy_unit="who",
        bounds=BOUNDS,
        metrics={"rows": Count()},
        partition_by="k",
        partitions=PublicPartitions(keys=[("a",)]),
    )
    second = dataclasses.replace(first, metrics={"users": PrivacyIdCount()})
    assert wrong(plan(first=first, second=second)) == {}
    plant(monkeypatch, where, old, new)
    found = wrong(plan(first=first, second=second))
    assert "all records together cost" in found["total"]


@pytest.mark.parametrize("split", ["constant", "linear", "exponential_decreasing"])
def test_a_total_that_leaves_out_a_round_is_found(split: str) -> None:
    of = Plan(epsilon=2.0, delta=1e-6, stages={"weekly": rolled()}, runs=3, split=split)  # type: ignore[arg-type]
    assert wrong(of) == {}
    other = copy.copy(of)
    (listed, times), *rest = of._groups
    other._groups = ((listed, times - 1), *rest) if times > 1 else tuple(rest)
    groups = other._groups
    cost = accountant.epsilon_of_rounds(groups, 1e-6)
    other.accounted = FrozenMapping({**of.accounted, "epsilon": cost})
    assert "rounds" in wrong(other)


def test_a_total_above_the_budget_and_a_delta_above_it_are_found() -> None:
    of = plan(weekly=rolled())
    richer = copy.copy(of)
    richer.epsilon = of.epsilon / 2
    assert "is spent, the budget has 1" in wrong(richer)["total"]
    other = copy.copy(of)
    other.accounted = FrozenMapping({**of.accounted, "delta": 2e-6})
    assert "delta 2e-06 is stated" in wrong(other)["total"]


@pytest.mark.parametrize("bound", ["max_partitions", "max_rows_per_partition"])
def test_workers_that_let_a_unit_contribute_more_than_the_job_says_are_found(bound: str) -> None:
    of = plan(weekly=rolled(rollup=None))
    first = of.round(1)
    stage = first.stages["weekly"]
    looser = dataclasses.replace(stage, layout=dataclasses.replace(stage.layout, **{bound: 5}))
    other = copy.copy(of)
    other._rounds = {1: dataclasses.replace(first, stages=FrozenMapping({"weekly": looser}))}
    assert list(wrong(other)) == ["bounds given to workers of weekly"]


def test_a_whole_audit_ends_with_a_total_that_is_too_small(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        "dp_pipelines.planning.plan:Plan._finish",
        "for r in records]",
        "for r in records if r.name != 'rows']",
    )
    found = audit.audit(plan(weekly=rolled(rollup=None)), replays=1000, false_alarms=1e-9)
    assert not found.agrees
    (line,) = [line for line in found.lines if line.name == audit.EVERYTHING]
    assert "total" in {each.what for each in line.findings if each.evidence == math.inf}
