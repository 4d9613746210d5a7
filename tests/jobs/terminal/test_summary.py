"""What is printed of a plan and of a release: public numbers, and names as they are."""

import io
import json
import pathlib

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines import ContributionBounds, Count, Plan, PrivacyIdCount, PrivatePartitions, Query
from dp_pipelines.jobs.terminal import released_rows, summary
from dp_pipelines.metrics.base import Metric
from dp_pipelines.query.train_model import BinaryLabel, Number, Steps, TrainModel
from dp_pipelines.report.numbers import with_error_bar

PLAN = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "runs": 52,
    "accounted": {"epsilon": 0.99991, "delta": 1e-6},
    "accounted_one_run": {"epsilon": 0.1234, "delta": 1e-7},
    "stages": [
        {
            "name": "weekly [red]",
            "share": 0.5,
            "metrics": {
                "orders": {
                    "noise": "gaussian",
                    "stddev": 12.345,
                    "expected_stddev": 12.345,
                    "expected_relative_error": 0.0123,
                },
                "[bold]price": {
                    "noise": "laplace",
                    "stddev": None,
                    "expected_stddev": 0.5,
                    "expected_relative_error": None,
                },
            },
            "selection": {"strategy": "weighted_gaussian", "threshold": 20.5, "half_keep_users": 33.0, "min_users": 5},
        },
        {"name": "regions", "share": 0.5, "metrics": {}, "selection": {"strategy": "public", "threshold": None}},
    ],
}


def test_a_plan_shows_noise_error_selection_and_cost() -> None:
    stream = io.StringIO()
    summary.print_plan(PLAN, stream)
    said = stream.getvalue()
    for words in (
        "budget     epsilon 1, delta 1e-06 for all 52 runs together",
        "accounted  epsilon 1,",
        "one run    epsilon 0.1234",
        "weekly [red] · share 50%",
        "12.35",
        "1.2%",
        "depends on group size",
        "[bold]price",
        "weighted gaussian; half of the groups of 33 units appear, none of fewer than 5",
        "partitions: the public list",
        "biased upwards",
    ):
        assert words in said
    assert "\x1b" not in said


def test_a_plan_whose_rounds_differ_says_so() -> None:
    stream = io.StringIO()
    summary.print_plan(PLAN | {"split": "linear", "last_round_noise": 1 / 52}, stream)
    assert "first run  epsilon 0.1234" in stream.getvalue()
    assert (
        "split      linear: the numbers below are for the first run; the last has 0.0192 times its noise"
        in stream.getvalue()
    )


def test_an_explanation_shows_four_ways_to_add_up_and_every_record() -> None:
    def query(**metrics: Metric) -> Query:
        bounds = ContributionBounds(max_partitions_contributed=3, max_contributions_per_partition=2)
        partitions = PrivatePartitions(strategy="truncated_geometric")
        return Query(privacy_unit="u", partition_by="k", bounds=bounds, metrics=metrics, partitions=partitions)

    stages = {"weekly [red]": query(rows=Count()), "regions": query(users=PrivacyIdCount())}
    plan = Plan(epsilon=1.0, delta=1e-6, stages=stages, runs=12)
    stream, again = io.StringIO(), io.StringIO()
    summary.print_explanation(plan, stream)
    summary.print_explanation(json.loads(json.dumps(plan.to_json())), again)
    said = stream.getvalue()
    assert said == again.getvalue()
    costs = plan.explain()["total"]
    for words in (
        "epsilon of all runs at delta 1e-06",
        "sum   advanced   Renyi   privacy loss distribution",
        "weekly [red] alone",
        *(summary.spent_number(costs[way]) for way in summary.WAYS),
        "3 decisions of epsilon",
        "partitions",
    ):
        assert " ".join(words.split()) in " ".join(said.split())
    assert all(record.name in said for record in plan.mechanisms)


def test_an_explanation_of_a_training_says_what_its_samples_change() -> None:
    features = {"visits": Number(column="visits", min_value=0, max_value=60)}
    steps = Steps(steps=20, sampling_rate=0.25, clip_norm=2.0)
    task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), features=features, steps=steps)
    stream = io.StringIO()
    summary.print_explanation(Plan(epsilon=4.0, delta=1e-6, stages={"model": task}), stream)
    (line,) = (line for line in stream.getvalue().splitlines() if "sampled gaussian" in line)
    assert "20 sums over samples of 0.25 of" in line  # a narrow terminal wraps the rest


def published(folder: pathlib.Path, table: pa.Table) -> str:
    """What is printed of a release."""
    pa.parquet.write_table(table, folder / "weekly.parquet")
    content = {
        "format": 1,
        "files": {"weekly.parquet": {}},
        "budget": {"epsilon": 1.0, "delta": 1e-6, "runs": 1},
        "accounted_one_run": {"epsilon": 0.9, "delta": 1e-6},
        "privacy_unit": "value of customer",
        "run_id": "one",
        "ledger": {"note": "not accounted across runs"},
    }
    (folder / "manifest.json").write_text(json.dumps(content))
    stream = io.StringIO()
    summary.print_release(folder, stream)
    return stream.getvalue()


def test_a_release_shows_its_first_rows_with_error_bars(tmp_path: pathlib.Path) -> None:
    rows = 20
    columns = {"k": [None, *map(str, range(1, rows))], "n": [100.0] * rows, "n_stddev": [2.0] * rows}
    said = published(tmp_path, pa.table(columns))
    assert "weekly · 20 partitions" in said
    assert "(null)" in said
    assert said.count("100.0 ± 3.9") == released_rows.FIRST_ROWS
    assert f"the first {released_rows.FIRST_ROWS} of {rows}; ± covers 95% of the noise" in said
    assert "every value of customer (all its rows together)" in said


def test_a_release_without_rows_or_without_metrics_is_shown_too(tmp_path: pathlib.Path) -> None:
    assert "weekly · 0 partitions" in published(tmp_path, pa.table({"k": pa.array([], pa.string())}))
    assert "weekly · 2 partitions" in published(tmp_path, pa.table({"k": ["[a]", "b"]}))
    assert "[a]" in published(tmp_path, pa.table({"k": ["[a]", "b"]}))


def test_a_released_key_says_nothing_to_a_terminal(tmp_path: pathlib.Path) -> None:
    loud = ["\x1b]0;owned\x07", "a\nb", "c\rd", "\x9b31m", "e\u202ef", "g\u2028h", "i\x7f", "j\u3000k", "l\u200dm"]
    said = "".join(published(tmp_path, pa.table({"k": loud[i : i + 3]})) for i in (0, 3, 6))
    for sign in "\x1b\x07\r\x9b\u202e\u2028\x7f":
        assert sign not in said
    shown = (
        r"\x1b]0;owned\x07",
        r"a\nb",
        r"c\rd",
        r"\x9b31m",
        r"e\u202ef",
        r"g\u2028h",
        r"i\x7f",
        "j\u3000k",
        "l\u200dm",
    )
    for key in shown:
        assert key in said


@pytest.mark.parametrize(
    ("value", "stddev", "shown"),
    [
        (1234.567, 12.3, "1235 ± 24"),
        (0.5, 0.0123, "0.500 ± 0.024"),
        (-3.0, 0.0, "-3 ± 0"),
        (None, 1.0, "-"),
        (1.0, float("inf"), "-"),
    ],
)
def test_a_value_is_shown_as_far_as_its_error_leaves_it_certain(value: float | None, stddev: float, shown: str) -> None:
    assert with_error_bar(value, stddev) == shown
