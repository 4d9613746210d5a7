"""The fields of a job that a ledger notes: what is left out, how long texts stay apart, how two jobs are compared."""

from pathlib import Path

import pytest

from dp_pipelines.jobs.request import job_fields
from dp_pipelines.jobs.spec import job_file
from tests.jobs.conftest import Shop, stage


def fields(shop: Shop, **changes: object) -> dict[str, str]:
    """The fields of the shop's job with some keys changed."""
    return job_fields.fields_of(job_file.load(str(shop.write(**changes))).job)


def words(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The changes in words."""
    return [change.words for change in job_fields.changes(before, after)]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """A shop with a job file alone."""
    return Shop(tmp_path)


def test_words_for_readers_and_guesses_about_rows_are_no_fields(shop: Shop) -> None:
    plain = fields(shop)
    assert (
        fields(shop, title="Orders", expect={"users": 5}, stages={"weekly": stage(description="All of them")}) == plain
    )
    assert plain["stages.weekly.metrics.revenue.max_value"] == "20"


def test_a_part_that_one_job_lacks_counts_once(shop: Shop) -> None:
    before = fields(shop)
    metrics = {
        "orders": {"kind": "count"},
        "income": {"kind": "sum", "column": "price", "min_value": 0, "max_value": 20},
    }
    after = fields(shop, stages={"weekly": stage(metrics=metrics)}, where="price > 1")
    assert words(before, after) == [
        "where: (not there) -> price > 1",
        "stages.weekly.metrics.income is new",
        "stages.weekly.metrics.revenue is gone",
    ]
    assert job_fields.shares_a_stage(before, after)
    assert not job_fields.shares_a_stage(before, fields(shop, stages={"monthly": stage()}))


def test_long_texts_are_cut_and_stay_different(shop: Shop) -> None:
    long = [f"price > {number}" for number in range(40)]
    one, other = (fields(shop, where=" AND ".join([*long, last])) for last in ("price > 8", "price > 9"))
    assert all(len(text) < 120 for text in (*one.values(), *other.values()))
    assert [change.key for change in job_fields.changes(one, other)] == ["where"]
