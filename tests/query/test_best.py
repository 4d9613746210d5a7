"""The best public partitions: what a plan says of them, what one unit can move, what is published, what is refused."""

import math
from collections import Counter
from fractions import Fraction
from pathlib import Path

import duckdb
import mpmath
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from dp_pipelines import (
    Best,
    ContributionBounds,
    Count,
    DistinctCount,
    Histogram,
    Mean,
    Plan,
    PrivacyIdCount,
    PrivatePartitions,
    PublicPartitions,
    Query,
    Sum,
    Top,
)
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.accumulate import Totals
from dp_pipelines.kernels.statistics import Statistic, UnitWeights
from dp_pipelines.noise import entropy
from dp_pipelines.planning.stage_kinds import BestKind
from dp_pipelines.release.draw import draw_release
from tests.helpers import neighbours as nb
from tests.helpers.examples import examples
from tests.helpers.pipelines import publish

LETTERS = [[letter] for letter in "abcdefgh"]


def query(chosen: Best, **changes: object) -> Query:
    fields = {
        "privacy_unit": "customer",
        "partition_by": "region",
        "partitions": PublicPartitions(keys=LETTERS),
        "bounds": ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3),
        "best": chosen,
    }
    return Query(**{**fields, **changes})  # type: ignore[arg-type]


# What one unit can move.


def spread_of(asked: Query) -> int:
    return BestKind(asked).choice.spread


@settings(max_examples=examples(75, 300))
@given(data=st.data())
def test_one_unit_moves_all_scores_within_an_interval_as_long_as_the_spread(data: st.DataObject) -> None:
    pair = data.draw(nb.neighbours())
    ways = data.draw(nb.ways(pair.smaller.num_rows)), data.draw(nb.ways(pair.larger.num_rows))
    before, after = (
        nb.exact(nb.totals(table, pair.layout, pair.statistics, way))
        for table, way in zip((pair.smaller, pair.larger), ways, strict=True)
    )
    for index, statistic in enumerate(pair.statistics):
        if not isinstance(statistic, UnitWeights):
            none = (0,) * len(pair.statistics)
            moved = [after.get(k, none)[index] - before.get(k, none)[index] for k in before.keys() | after.keys()]
            allowed = statistic.score_range(pair.layout.max_rows_per_partition)
            assert max([0, *moved]) - min([0, *moved]) <= allowed, statistic.name


@pytest.mark.parametrize(
    ("metric", "spread"),
    [
        (PrivacyIdCount(), 1),
        (Count(), 3),
        (DistinctCount("color"), 3),
        (DistinctCount("color", max_values_per_partition=2), 2),
    ],
)
def test_the_spread_of_counts_is_what_one_unit_adds(metric: PrivacyIdCount, spread: int) -> None:
    assert spread_of(query(Best(by=metric))) == spread


def test_the_spread_of_sums_counts_both_directions() -> None:
    up, both = (query(Best(by=Sum("x", min_value=low, max_value=2))) for low in (0, -1))
    lattice = both.best.statistic.lattice  # type: ignore[union-attr]
    assert lattice is not None
    assert spread_of(both) * lattice.step == pytest.approx(9)
    assert spread_of(up) * up.best.statistic.lattice.step == pytest.approx(6)  # type: ignore[union-attr]
    clipped = query(Best(by=Sum("x", min_sum_per_partition=-1, max_sum_per_partition=2)))
    assert spread_of(clipped) * clipped.best.statistic.lattice.step == pytest.approx(3)  # type: ignore[union-attr]


# The plan.


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("runs", [1, 20])
def test_the_choices_spend_the_budget(mechanism: str, delta: float, runs: int) -> None:
    asked = query(Best(k=3, mechanism=mechanism))  # type: ignore[arg-type]
    plan = Plan(epsilon=2.0, delta=delta, runs=runs, stages={"best": asked})
    assert 1.99 <= plan.accounted["epsilon"] <= 2.0
    (record,) = plan.mechanisms
    assert (record.kind, record.l0) == ("bounded_range" if mechanism == "exponential" else "approximate_dp", 3)
    stage = plan["best", 1]
    assert record.epsilon == stage.choices.selection_epsilon
    shown = plan.to_json()["stages"][0]["selection"]
    assert (shown["strategy"], shown["k"], shown["by"], shown["candidates"]) == (mechanism, 3, "units", 8)
    assert shown["error_95"] == pytest.approx(math.log(160) / record.epsilon)
    again = Plan.restore(plan.frozen(), epsilon=2.0, delta=delta, runs=runs, stages={"best": asked})
    assert again.digest == plan.digest
    with pytest.raises(RequestError, match="made for another query"):
        other = query(Best(k=3, mechanism="exponential" if mechanism == "permute_and_flip" else "permute_and_flip"))
        Plan.restore(plan.frozen(), epsilon=2.0, delta=delta, runs=runs, stages={"best": other})


def test_many_choices_cost_less_by_exponential_mechanisms() -> None:
    epsilons = [
        Plan(epsilon=1.0, delta=1e-6, runs=50, stages={"best": query(Best(k=5, mechanism=mechanism))})[
            "best", 1
        ].choices.selection_epsilon
        for mechanism in ("permute_and_flip", "exponential")  # type: ignore[arg-type]
    ]
    assert epsilons[1] > 1.6 * epsilons[0]


def test_a_choice_shares_its_budget_with_other_stages_and_with_rounds() -> None:
    other = query(Best(), best=None, metrics={"rows": Count()})
    plan = Plan(
        epsilon=1.0, delta=1e-6, stages={"best": query(Best()), "counts": other}, shares={"best": 1, "counts": 3}
    )
    assert 0.99 < plan.accounted["epsilon"] <= 1.0
    assert 0.1 < plan["best"].choices.selection_epsilon < 0.6
    split = Plan(epsilon=1.0, delta=1e-6, runs=4, split="linear", stages={"best": query(Best())})
    first, last = (split.round(number).stages["best"].choices.selection_epsilon for number in (1, 4))
    assert last == pytest.approx(4 * first)
    assert 0.98 < split.accounted["epsilon"] <= 1.0


# The release.


def rows() -> pa.Table:
    """Customers in regions a to f, the later ones more of them; z is in no list, g and h are in no row."""
    made = np.random.default_rng(5)
    region = np.repeat([*"abcdef", "z"], [50, 300, 1000, 1600, 2400, 3600, 4000])
    return pa.table({"customer": np.arange(len(region)), "region": region, "x": made.uniform(-1, 2, len(region))}).take(
        pa.array(made.permutation(len(region)))
    )


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("metric", ["users", "rows", Sum("x", min_value=-1, max_value=2)], ids=str)
def test_where_the_best_are_far_ahead_they_are_those_of_duckdb_in_order(
    tmp_path: Path, mechanism: str, metric: str | Sum
) -> None:
    asked = query(
        Best(k=3, by=metric, mechanism=mechanism),  # type: ignore[arg-type]
        bounds=ContributionBounds(max_partitions_contributed=1, max_contributions_per_partition=1),
    )
    events = rows()
    stage = Plan(epsilon=20.0, delta=0.0, stages={"stage": asked})["stage"]
    released = publish(stage, [events.slice(0, 5000), events.slice(5000)], tmp_path / "out")
    value = "sum(greatest(-1, least(2, x)))" if isinstance(metric, Sum) else "count(*)"
    wanted = duckdb.sql(
        f"select region from events where region in ('a','b','c','d','e','f') group by region order by {value} desc limit 3"
    ).fetchall()
    # The best one left is 100 or more ahead: at 3 / 20 of a spread for each e-fold it is missed less than once in 10^80.
    assert released.column_names == ["region", "rank"]
    ranked = sorted(zip(released["rank"].to_pylist(), released["region"].to_pylist(), strict=True))
    assert ranked == [(rank, region) for rank, (region,) in enumerate(wanted, start=1)]
    assert released["region"].to_pylist() == sorted(released["region"].to_pylist())


def totals_of(counts: list[int]) -> Totals:
    zero, low = np.zeros(len(counts), np.int64), np.array(counts, np.int64)
    return Totals(partitions=(pa.array([key for (key,) in LETTERS[: len(counts)]]),), high=(zero,), low=(low,))


def test_what_is_drawn_has_the_law_that_the_plan_pays_for() -> None:
    asked = query(Best(by="rows", mechanism="exponential"), partitions=PublicPartitions(keys=LETTERS[:3]))
    stage = Plan(epsilon=1.5, delta=0.0, stages={"best": asked})["best"]
    assert [statistic.kind for statistic in stage.statistics] == ["rows", "units"]
    totals = totals_of([4, 0, 7])
    totals = Totals(partitions=totals.partitions, high=totals.high * 2, low=(*totals.low, totals.low[0] * 0))
    drawn: Counter[str] = Counter()
    for _ in range(5000):
        drawn[draw_release(totals, stage)["region"][0].as_py()] += 1

    def believable(epsilon: float) -> bool:
        # One unit adds up to 3 rows to a partition.
        weights = [mpmath.exp(epsilon * count / 3) for count in (4, 0, 7)]
        shares = [float(weight / mpmath.fsum(weights)) for weight in weights]
        tests = [stats.binomtest(drawn[key], 5000, share).pvalue for key, share in zip("abc", shares, strict=True)]
        return min(tests) >= 1e-9 / 3

    assert believable(stage.choices.selection_epsilon)
    assert not believable(2 * stage.choices.selection_epsilon)
    assert not believable(stage.choices.selection_epsilon / 2)


def test_nothing_of_the_values_is_published() -> None:
    stage = Plan(epsilon=1.0, delta=0.0, stages={"best": query(Best(k=8))})["best"]
    released = draw_release(totals_of([5, 4, 3, 2, 1, 0, 9, 8]), stage, words=entropy.words)
    assert released.column_names == ["region", "rank"]
    assert released["region"].to_pylist() == [key for (key,) in LETTERS]
    assert sorted(released["rank"].to_pylist()) == list(range(1, 9))


# What is refused.


@pytest.mark.parametrize("k", [0, -1, 1.5, True, 1001])
def test_a_number_of_partitions_that_is_none_is_refused(k: object) -> None:
    with pytest.raises(RequestError, match=r"best\.k"):
        Best(k=k)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "by",
    [
        "orders",
        None,
        Mean("x", min_value=0, max_value=1),
        Histogram("x", edges=[0, 1, 2]),
        Count(stddev=3.0),
    ],
    ids=str,
)
def test_what_is_no_single_sum_is_not_compared(by: object) -> None:
    with pytest.raises(RequestError, match=r"best\.by"):
        Best(by=by)  # type: ignore[arg-type]


def test_a_mechanism_that_is_none_is_refused() -> None:
    with pytest.raises(RequestError, match=r"best\.mechanism"):
        Best(mechanism="gumbel")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"best": "users"}, "best: must be a Best"),
        ({"partitions": PrivatePartitions()}, "best: needs public partitions"),
        ({"metrics": {"rows": Count()}}, "best: publishes no values"),
        ({"metrics": {"rows": Count()}, "top": Top(k=1, by="rows")}, "best: publishes no values"),
        ({"partition_by": "rank"}, "twice"),
        ({"best": Best(k=9)}, r"best\.k: must be at most the number of partitions"),
        (
            {"best": Best(by="rows"), "bounds": ContributionBounds(max_partitions_contributed=2)},
            r"max_contributions_per_partition: is needed by best\.by",
        ),
        (
            {
                "best": Best(by=Sum("x", min_sum_per_partition=0, max_sum_per_partition=1)),
                "bounds": ContributionBounds(max_contributions=2),
            },
            r"best\.by: clips sums per partition",
        ),
    ],
)
def test_a_query_that_contradicts_itself_is_refused(changes: dict[str, object], complaint: str) -> None:
    with pytest.raises(RequestError, match=complaint):
        query(Best(), **changes)


def test_a_query_without_best_says_nothing_about_it_so_that_digests_stay() -> None:
    from dp_pipelines.planning.describe import query_to_json

    asked = query(Best(), best=None, metrics={"rows": Count()})
    assert "best" not in query_to_json(asked)
    assert query_to_json(query(Best()))["best"]["by"]["kind"] == "PrivacyIdCount"


def test_the_column_that_is_summed_is_read() -> None:
    assert query(Best(by=Sum("x", min_value=0, max_value=1))).columns == ("customer", "region", "x")
    stage = Plan(epsilon=1.0, stages={"s": query(Best(by=Sum("x", min_value=0, max_value=1)))})["s"]
    assert [column for column, _ in stage.layout.values] == ["x"]
    assert isinstance(stage.statistics[0], Statistic)
    assert Fraction(stage.choices.selection_epsilon) > 0
