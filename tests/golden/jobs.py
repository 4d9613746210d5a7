"""Two hundred made-up jobs over one table: every metric, strategy and kind of stage, bounds as odd as a person might write them.

In: a number. Out: a job file's content, the same on every machine. Holds: all kinds that the schema knows occur
(`test_golden.py` counts them). Not covered: whether such a job is sensible; some are refused, and that is an answer too.
"""

import random
from typing import Any

NUMBER = 200

LATER, JOBS_OF_EACH = ("geometric_mean",), 8
"""Kinds of metrics that came after the two hundred: each has jobs of its own behind them, so that those stay what they were."""

FEDERATED = 6
"""Jobs with a stage of federated rounds, which came later still."""

BY_TURNS = 4
"""Jobs with federated rounds of clients who take turns, half of them with correlated noise."""

VOTED = 6
"""Jobs with a stage whose teachers vote, which came after these."""

CROSSED = 4
"""Jobs with a train stage that has pairs of features, which came last."""

UNCROSSED = NUMBER + JOBS_OF_EACH * len(LATER) + FEDERATED + BY_TURNS + VOTED

ALL = UNCROSSED + CROSSED

STRATEGIES = ("auto", "truncated_geometric", "laplace", "gaussian", "weighted_gaussian", "sips")
BOUNDS: list[dict[str, Any]] = [
    {"max_partitions_contributed": 1, "max_contributions_per_partition": 1},
    {"max_partitions_contributed": 3, "max_contributions_per_partition": 2},
    {"max_partitions_contributed": 17, "max_contributions_per_partition": 1},
    {"max_partitions_contributed": 500, "max_contributions_per_partition": 64},
    {"max_contributions": 1},
    {"max_contributions": 7},
    {"max_contributions": 100},
    {"max_partitions_contributed": "auto", "max_contributions_per_partition": 1, "partition_candidates": [1, 3, 9]},
]
PUBLIC = [["p1"], ["p2"], ["nobody's"]]
RANGES = ((0, 20), (-5, 5), (0.5, 0.75), (0, 1e9), (-1e-3, 0))


def bounded(draw: random.Random, *, auto: bool = False) -> dict[str, Any]:
    """A column and the range of its values."""
    low, high = draw.choice(RANGES)
    if auto and draw.random() < 0.15:
        return {"column": "price", "min_value": "auto", "max_value": "auto", "within": [0, 1000]}
    return {"column": "price", "min_value": low, "max_value": high}


def metric(kind: str, draw: random.Random) -> dict[str, Any]:
    """A metric of a kind."""
    told: dict[str, Any] = {"kind": kind}
    if kind == "sum":
        whole = {"column": "price", "min_sum_per_partition": -1, "max_sum_per_partition": draw.choice([5, 100.5])}
        told |= whole if draw.random() < 0.3 else bounded(draw, auto=True)
    elif kind in ("mean", "variance"):
        told |= bounded(draw, auto=kind == "mean") | {"nullable": draw.random() < 0.5}
    elif kind == "geometric_mean":
        low, high = draw.choice([(0.5, 20), (1, 1e9), (1e-3, 0.75)])
        told |= {"column": "price", "min_value": low, "max_value": high, "nullable": draw.random() < 0.5}
    elif kind == "histogram":
        told |= draw.choice(
            [{"column": "price", "edges": [0, 1, 5, 20]}, {"column": "note", "categories": ["7", "x", "other"]}]
        )
    elif kind in ("median", "min", "max"):
        told |= bounded(draw)
    elif kind == "quantiles":
        told |= bounded(draw) | {"quantiles": draw.choice([[0.5], [0.1, 0.5, 0.99]])}
    elif kind == "quantile":
        told |= {"column": "price", "quantile": draw.choice([0.5, 0.9]), "candidates": [1, 2, 5, 10, 20]}
    elif kind == "distinct_count":
        told |= {"column": "note"} | draw.choice([{}, {"max_values_per_partition": 2}])
    elif kind == "vector_sum":
        told |= {"column": "vector", "size": 3, "norm": draw.choice(["l1", "l2", "linf"]), "max_norm": 2.5}
    elif kind == "second_moments":
        columns = {"columns": ["price", "weight"]}
        bounds = {"bounds": {"price": [0, 20], "weight": [-1, 1]}}
        told |= columns | draw.choice([bounds, {"max_norm": 3.0}])
    if draw.random() < 0.3:
        told["weight"] = draw.choice([0.25, 2, 7.5])
    return told


SINGLE = ("count", "privacy_id_count", "sum", "mean", "variance", "median", "min", "max", "distinct_count", "quantile")
KINDS = (*SINGLE, "histogram", "quantiles", "vector_sum", "second_moments")


def aggregate(number: int, draw: random.Random, first: str | None = None) -> dict[str, Any]:
    """An aggregate stage; each kind of metric comes round, or a given one is there."""
    kinds = [first or KINDS[number % len(KINDS)], *draw.sample(KINDS, draw.randrange(3))]
    stage: dict[str, Any] = {
        "kind": "aggregate",
        "partition_by": draw.choice(["product", ["product"]]),
        "bounds": BOUNDS[number % len(BOUNDS)],
        "metrics": {f"m{place}": metric(kind, draw) for place, kind in enumerate(dict.fromkeys(kinds))},
    }
    if draw.random() < 0.3:
        stage["share"] = draw.choice([0.5, 3])
    if (number // 3) % 3 == 0:
        stage["partitions"] = {"public": PUBLIC}
        if draw.random() < 0.25:
            by = draw.choice(["count", "privacy_id_count"])
            stage |= {"metrics": {"only": {"kind": by}}, "best": {"k": draw.choice([1, 2]), "by": "only"}}
    else:
        chosen = "auto" in stage["bounds"].values()
        strategy = STRATEGIES[number % len(STRATEGIES)]
        private: dict[str, Any] = {"strategy": "auto" if chosen and draw.random() < 0.8 else strategy}
        counted = private["strategy"] not in ("weighted_gaussian", "sips")
        private |= draw.choice([{}, {"min_users": 10} if counted else {}, {"weight": 2.0}])
        stage["partitions"] = {"private": private}
        if draw.random() < 0.15:
            stage["metrics"]["ranked"] = {"kind": "count"}
            stage["top"] = {"k": 3, "by": "ranked"}
    lists = any(one["kind"] == "vector_sum" for one in stage["metrics"].values())
    if draw.random() < 0.15 and not lists:
        stage["unit_columns"] = {"before": "count(*) OVER (ORDER BY paid_at)"}
        stage |= {"where": "before >= 1", "max_rows_per_unit": 50}
    return stage


def train(draw: random.Random) -> dict[str, Any]:
    """A train stage."""
    label = draw.choice(
        [
            {"kind": "binary", "column": "dear"},
            {"kind": "classes", "column": "store", "classes": [1, 2, 3]},
            {"kind": "number", "column": "price", "min_value": 0, "max_value": 20},
        ]
    )
    features = {
        "weight": draw.choice(
            [
                {"kind": "number", "min_value": -1, "max_value": 1},
                {"kind": "number", "min_value": -1, "max_value": 1, "bins": 4, "scaled": True},
                {"kind": "number", "min_value": -1, "max_value": 1, "edges": [-0.5, 0.5]},
            ]
        ),
        "product": draw.choice([{"kind": "category", "categories": ["p1", "p2"]}, {"kind": "category", "most": 3}]),
    }
    fit = draw.choice([{}, {"steps": 7}, {"steps": 30, "sampling_rate": 0.1}, {"momentum": 0.5, "clip_norm": 2.0}])
    model = draw.choice([{"kind": "linear"}, {"kind": "mlp", "hidden": [8]}])
    more: dict[str, Any] = draw.choice([{}, {"whiten": False}, {"held_out": 0.3}, {"max_examples_per_unit": 3}])
    return {"kind": "train", "label": label, "features": features, "model": model, "fit": fit, **more}


def federate(number: int, draw: random.Random) -> dict[str, Any]:
    """A stage of federated rounds; each schedule of noise comes round."""
    schedules = ["constant", "linear", "exponential", "linear_decreasing", "exponential_decreasing"]
    schedule = schedules[number % len(schedules)]
    fit: dict[str, Any] = {"rounds": draw.choice([1, 5, 40]), "schedule": schedule}
    fit |= draw.choice([{"method": "fedsgd"}, {"local_epochs": 2}, {"local_rate": 0.5, "clip_norm": 2.0}])
    if schedule == "constant" or draw.random() < 0.5:
        fit |= {"sampling_rate": 0.25, "participation": "hidden" if schedule == "constant" else "visible"}
    asked = {**train(draw), "kind": "federate", "expected_clients": draw.choice([100, 30_000]), "fit": fit}
    return asked


def by_turns(number: int, draw: random.Random) -> dict[str, Any]:
    """The same with clients who are in one of several rounds."""
    rounds, separation = draw.choice([(5, 5), (40, 4), (40, 10), (6, 2)])
    fit: dict[str, Any] = {"rounds": rounds, "separation": separation, "momentum": draw.choice([0, 0.8])}
    fit |= {"noise": "correlated"} if number % 2 else {"schedule": draw.choice(["constant", "linear"])}
    return {**train(draw), "kind": "federate", "expected_clients": 30_000, "fit": fit}


def pate(draw: random.Random) -> dict[str, Any]:
    """A stage whose teachers vote."""
    fit: dict[str, Any] = {"teachers": draw.choice([20, 500]), "answers": draw.choice([1, 30])}
    fit |= draw.choice([{}, {"asked": 70}, {"threshold": 15}, {"steps": 9, "learning_rate": 0.5}])
    stage = train(draw)
    label = stage["label"] if stage["label"]["kind"] != "number" else {"kind": "binary", "column": "dear"}
    return {**stage, "kind": "pate", "label": label, "fit": fit, "public": {"parquet": "public.parquet"}}


def crossed(draw: random.Random) -> dict[str, Any]:
    """A train stage with pairs of features."""
    stage = train(draw)
    weight, store = (
        {"kind": "number", "min_value": -1, "max_value": 1, "bins": 4},
        {"kind": "category", "categories": [1, 2]},
    )
    pairs = draw.choice([[["weight", "product"], ["product", "store"]], [["store", "weight"]]])
    return {
        **stage,
        "features": {**stage["features"], "weight": weight, "store": store},
        "pairs": pairs,
        "model": {"kind": "linear"},
    }


def job(number: int) -> dict[str, Any]:
    """One of the jobs.

    >>> job(3) == job(3)
    True
    """
    draw = random.Random(f"dp_pipelines {number}")  # a fixed table of jobs, not privacy noise
    has_pairs = number >= UNCROSSED
    voted = number >= UNCROSSED - VOTED and not has_pairs
    federated = number >= UNCROSSED - VOTED - BY_TURNS - FEDERATED and not voted and not has_pairs
    later = (
        LATER[(number - NUMBER) // JOBS_OF_EACH]
        if NUMBER <= number < UNCROSSED and not federated and not voted
        else None
    )
    stages = {f"s{place}": aggregate(number + 31 * place, draw, later) for place in range(draw.choice([1, 1, 2, 3]))}
    if number % 8 == 5:
        stages = {**stages, "model": train(draw)} if draw.random() < 0.5 else {"model": train(draw)}
    if federated:
        stages = {"model": (by_turns if number >= UNCROSSED - VOTED - BY_TURNS else federate)(number, draw)}
    if voted:
        stages = {"model": pate(draw)}
    if has_pairs:
        stages = {"model": crossed(draw)}
    budget: dict[str, Any] = {"epsilon": draw.choice([0.5, 2.0, 8.0]), "delta": draw.choice([1e-9, 1e-6, 1e-5])}
    if draw.random() < 0.4:
        budget |= {"runs": draw.choice([2, 12, 52]), "split": draw.choice(["constant", "linear", "exponential"])}
    if federated:
        budget |= {"runs": 4, "split": draw.choice(["linear_decreasing", "exponential_decreasing", "constant"])}
    made: dict[str, Any] = {
        "dataset": "golden",
        "privacy_unit": draw.choice(["customer", ["customer"], ["customer", "store"]]),
        "budget": budget,
        "source": {"parquet": "data/*.parquet"},
        "columns": {"dear": "price > 10"},
        "stages": stages,
    }
    if draw.random() < 0.2:
        made["where"] = "price IS NULL OR price < 15"
    return made
