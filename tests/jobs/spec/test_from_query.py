"""A query is a job without a text in between, and what is wrong with it is told by the names of its arguments."""

import datetime
import decimal
import pathlib
from typing import Any

import numpy as np
import pytest

import dp_pipelines as dp
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.queries import queries
from dp_pipelines.jobs.spec import from_query, job_file, yaml_lines
from dp_pipelines.jobs.spec.content import plain
from dp_pipelines.jobs.spec.job_file import JobFile

BOUNDS = dp.ContributionBounds(max_partitions_contributed=2, max_contributions_per_partition=3)
REGIONS = dp.PublicPartitions(keys=[("north", 1), ("south", 2)])
QUERIES = {
    "metrics": {"metrics": {"orders": dp.Count(), "paid": dp.Sum("paid", min_value=0, max_value=9, weight=2)}},
    "no metrics": {},
    "a strategy": {"partitions": dp.PrivatePartitions(strategy="laplace", min_users=3), "metrics": {"n": dp.Count()}},
    "a list": {"partitions": REGIONS, "metrics": {"n": dp.PrivacyIdCount()}, "partition_by": ["region", "store"]},
    "the best": {"partitions": REGIONS, "best": dp.Best(k=2, by="users"), "partition_by": ["region", "store"]},
    "the largest": {"metrics": {"n": dp.Count()}, "top": dp.Top(k=3, by="n"), "row_id": "receipt"},
    "chosen bounds": {
        "metrics": {"n": dp.Count()},
        "bounds": dp.ContributionBounds(
            max_partitions_contributed="auto", max_contributions_per_partition=1, partition_candidates=[1, 4]
        ),
    },
    "moments": {"metrics": {"m": dp.SecondMoment(columns=["a", "b"], bounds={"a": (0, 1), "b": (-1, 1)})}},
}


def job(query: dp.Query, **changes: Any) -> JobFile:
    """The job of a query."""
    given: dict[str, Any] = {"dataset": "shop", "source": {"parquet": "data/*.parquet"}, "epsilon": 1.0, "delta": 1e-6}
    return from_query.job_of(query, "weekly", folder=pathlib.Path("/rows"), **{**given, **changes})


@pytest.mark.parametrize("case", QUERIES)
def test_a_query_becomes_a_job_and_the_same_query_again(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_text(*text: object) -> None:
        raise AssertionError("what a program says is no text")

    monkeypatch.setattr(yaml_lines, "parse", no_text)
    query = dp.Query(privacy_unit="customer", **{"partition_by": "region", "bounds": BOUNDS, **QUERIES[case]})
    assert queries(job(query)) == {"weekly": query}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"epsilon": float("inf")}, "^epsilon: must be a finite number"),
        ({"epsilon": float("nan")}, "^epsilon: must be"),
        ({"dataset": "a\x1b[2J"}, "^dataset: must not contain line breaks"),
        ({"columns": {"a": 3}}, "^columns.a: must be text"),
        ({"columns": {"a": object()}}, "^columns.a: holds a value that no job file can hold; use numbers"),
        ({"where": "half \ud800"}, "^where: holds a value that no job file can hold"),
        ({"source": {"parquet": "a", "csv": "b"}}, "^source: must name files as one of"),
    ],
)
def test_what_is_wrong_is_told_by_the_names_of_the_arguments_and_no_line(changes: dict[str, Any], told: str) -> None:
    query = dp.Query(privacy_unit="customer", partition_by="region", bounds=BOUNDS)
    with pytest.raises(dp.RequestError, match=told):
        job(query, **changes)


def test_all_that_is_wrong_with_settings_is_told_at_once() -> None:
    bounds, metrics = {"max_contributions": 0}, {"n": {"kind": "cont"}}
    content = {
        "dataset": "none", "privacy_unit": "customer", "budget": {"epsilon": 0, "delta": 1e-6}, "source": {"parquet": "rows"},
        "stages": {"weekly": {"kind": "aggregate", "partition_by": "region", "bounds": bounds, "metrics": metrics}},
    }  # fmt: skip
    with pytest.raises(dp.RequestError) as refused:
        from_query.read(content, "weekly", pathlib.Path("/rows"))
    told = [line.partition(":")[0] for line in str(refused.value).splitlines()]
    assert sorted(told) == ["bounds.max_contributions", "epsilon", "metrics.n.kind"]


class Text(str):
    """As some readers of YAML make them."""


def test_values_of_programs_are_said_as_in_files() -> None:
    said = plain(
        {
            "text": Text("a"), "days": (datetime.date(2026, 1, 5), datetime.datetime(2026, 1, 5, 12)),
            7: np.int32(3), "no": np.bool_(0),
            "exact": decimal.Decimal("1.10"), "real": np.float64(0.5), "whole": 2**100, "nothing": None, "yes": True,
        }
    )  # fmt: skip
    assert said == {
        "text": "a", "days": ["2026-01-05", "2026-01-05T12:00:00"], "7": 3, "no": False, "exact": "1.10", "real": 0.5,
        "whole": 2**100, "nothing": None, "yes": True,
    }  # fmt: skip
    assert [type(value) for value in said.values()] == [str, list, int, bool, str, float, int, type(None), bool]


def test_what_no_file_can_say_is_refused_by_its_place() -> None:
    around: list[Any] = []
    around.append(around)
    for value in (object(), {1.5: "a"}, [np.arange(3)], 10**5000, b"bytes", {True: 1}):
        with pytest.raises(dp.RequestError, match=r"^columns.*: holds a value that no job file can hold"):
            plain({"columns": value})
    with pytest.raises(dp.RequestError, match="^columns: is nested more than 50 levels deep"):
        plain({"columns": around})


@pytest.mark.parametrize("doubled", [{1: "a", "1": "b"}, {"x": {"2": 1, 2: 2}}])
def test_a_key_that_a_file_would_hold_twice_is_refused(doubled: dict[Any, Any]) -> None:
    with pytest.raises(RequestError, match=r"^(columns\.1|columns\.x\.2): is given twice"):
        plain({"columns": doubled})


def test_only_a_file_has_lines() -> None:
    query = dp.Query(privacy_unit="customer", partition_by="region", bounds=BOUNDS)
    wrong = dp.RequestError(field="min_users", message="is wrong")
    place = ("stages", "weekly", "partitions", "private")
    assert job(query).error(place, wrong).field == "partitions.private.min_users"
    text = (
        "dataset: a\nprivacy_unit: u\nbudget: {epsilon: 1, delta: 0.1}\nsource: {parquet: p}\nstages:\n"
        "  weekly:\n    {kind: aggregate, partition_by: r, bounds: {max_contributions: 1}}\n"
    )
    file = job_file.read(text, pathlib.Path("job.yaml"), "job.yaml")
    assert file.error(place, wrong).field == "job.yaml:6: stages.weekly.partitions.private.min_users"
