"""What `plan` says of limits that are not measured: only where they may cut something off, and with ways out that work."""

import dataclasses
from typing import Any

import pytest
import yaml

from dp_pipelines import (
    ContributionBounds,
    Count,
    Kept,
    Mean,
    Median,
    Plan,
    PrivacyIdCount,
    PublicPartitions,
    Query,
    Sum,
)
from dp_pipelines.planning.unmeasured_limits import MEASURED, WRITTEN, note

BY_HAND = ContributionBounds(max_partitions_contributed=8, max_contributions_per_partition=4)
BUYERS = {"buyers": PrivacyIdCount()}
PAID = Sum("paid", min_value=0, max_value=9)


def query(**changes: Any) -> Query:
    """A stage with bounds that somebody wrote down."""
    asked: dict[str, Any] = {"privacy_unit": "u", "partition_by": "week", "bounds": BY_HAND, "metrics": {"paid": PAID}}
    return Query(**{**asked, **changes})


def test_limits_that_nobody_measures_have_a_note_with_both_ways_out() -> None:
    said = note(query())
    assert "what the limits cut off is not measured: numbers may be far too low" in said
    assert "leave bounds out" in said
    assert "or add kept: {share: 0.02, each_metric: true}" in said
    assert "another plan, charged anew" in said


def test_what_the_note_proposes_is_a_plan_that_needs_no_note() -> None:
    for changed in (
        {"kept": Kept(share=0.02, each_metric=True)},
        {"bounds": Query(**{**vars(query()), "bounds": BY_HAND}).bounds},
    ):
        asked = query(**changed)
        assert (note(asked) == "") == (asked.kept is not None)
        Plan(epsilon=1.0, delta=1e-6, stages={"weekly": asked})


@pytest.mark.parametrize(
    ("changes", "noted"),
    [
        ({"metrics": BUYERS}, True),
        ({"metrics": BUYERS, "partition_by": []}, False),
        ({"metrics": BUYERS, "partitions": PublicPartitions(keys=[("a",), ("b",)])}, False),
        ({"metrics": {"orders": Count()}, "partitions": PublicPartitions(keys=[("a",), ("b",)])}, True),
        ({"metrics": {}}, False),
        ({"metrics": {"orders": Count()}, "bounds": ContributionBounds(max_contributions=30)}, True),
    ],
)
def test_a_note_is_there_only_if_limits_may_cut_something_off_of_the_metrics(
    changes: dict[str, Any], noted: bool
) -> None:
    if changes.get("partition_by") == []:
        changes = {**changes, "bounds": ContributionBounds(max_contributions_per_partition=1)}
    assert bool(note(query(**changes))) == noted


def test_a_way_out_that_the_stage_cannot_take_is_not_named() -> None:
    assert "leave bounds out" not in note(query(metrics={"paid": dataclasses.replace(PAID, stddev=3.0)}))
    said = note(query(), measurable=False)
    assert "leave bounds out" not in said
    assert "kept" not in said
    assert "this stage cannot measure it" in said


def test_metrics_without_a_middle_of_their_own_are_not_called_low() -> None:
    assert "far off" in note(query(metrics={"typical": Median("paid", min_value=0, max_value=9)}))


def test_kept_without_each_metric_names_the_metrics_that_will_have_no_estimate() -> None:
    metrics = {"orders": Count(), "paid": PAID, "basket": Mean("paid", min_value=1, max_value=9), **BUYERS}
    kept = query(metrics=metrics, kept=Kept(share=0.02))
    assert note(kept).startswith("buyers, paid will have no estimate") or note(kept).startswith(
        "paid, buyers will have"
    )
    assert "add each_metric: true" in note(kept)
    assert note(kept, has_ranges=False) == ""
    assert note(query(metrics={"orders": Count()}, kept=Kept(share=0.02))) == ""
    assert note(query(metrics=metrics, kept=Kept(share=0.02, each_metric=True))) == ""


def test_what_is_proposed_in_words_is_what_was_tried() -> None:
    assert Kept(**yaml.safe_load(WRITTEN)["kept"]) == MEASURED


def test_where_each_row_is_a_unit_there_is_nothing_to_cut_off() -> None:
    rows = query(privacy_unit="(row)", bounds=ContributionBounds(max_contributions=1), metrics={"orders": Count()})
    assert note(rows) == ""


def test_one_metric_that_looks_at_rows_is_enough_for_a_note() -> None:
    listed = PublicPartitions(keys=[("a",), ("b",)])
    for metrics in ({"orders": Count(), **BUYERS}, {**BUYERS, "orders": Count()}):
        assert "not measured" in note(query(metrics=metrics, partitions=listed))
