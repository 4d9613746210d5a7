"""Columns that are computed from a published table: which there are, what they say of limits, and what they never read.

In: made-up tables and manifests. Out: columns and sentences. Holds: a name that was not released, a law that is not known and a
manifest that contradicts itself give no number. Not covered: intervals (`test_intervals`), whole runs
(`tests/jobs/run/test_derived_metrics.py`).
"""

import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.query.range_columns import ENDS
from dp_pipelines.release.ranges import GROUP, KeptShare, ranges_of_means
from dp_pipelines.report.derived import derived_columns, part_noise

SUM = "sum(price in [0.0, 20.0], values)"
KEPT = {"share": 0.9, "stddev": 0.01, "divided_by": 0.9, "times": GROUP, "why": None, "below": None}


def entry(kind: str, stddev: float, statistic: str, law: str = "gaussian", **more: Any) -> dict[str, Any]:
    """What a manifest says of a metric of one statistic."""
    return {"kind": kind, "stddev": stddev, "statistics": {statistic: {"noise": law, "stddev": stddev}}, **more}


def stage(**more: Any) -> dict[str, Any]:
    """The entry of a stage with a count and a sum."""
    metrics = {"orders": entry("count", 5.0, "rows"), "revenue": entry("sum", 40.0, SUM)}
    return {"name": "weekly", "partition_by": ["product"], "metrics": metrics, **more}


def table(**more: Any) -> pa.Table:
    """Its table."""
    columns = {"orders": [100.0, 400.0, 2.0, None], "revenue": [900.0, 4000.0, 50.0, 10.0]}
    spread = {"orders_stddev": [5.0] * 4, "revenue_stddev": [40.0] * 4}
    return pa.table({"product": ["a", "b", "c", "d"], **columns, **spread, **more})


def made(formulas: dict[str, str], described: dict[str, Any], rows: pa.Table) -> pa.Table:
    """The table with columns of formulas."""
    derived = derived_columns.of_stage(described, formulas, rows.column_names)
    return derived_columns.added(rows, derived, ranged="kept" in described)


def test_a_formula_has_a_value_and_the_interval_of_its_noise() -> None:
    found = made({"basket": "revenue / orders"}, stage(), table())
    assert found.column_names[-3:] == ["basket", "basket_noise_low", "basket_noise_high"]
    assert found.column("basket").to_pylist() == [9.0, 10.0, None, None]
    low, high = (found.column(f"basket_{end}").to_pylist() for end in derived_columns.NOISE_ENDS)
    assert [end is None for end in low] == [end is None for end in high] == [False, False, True, True]
    assert low[0] < 9.0 < high[0]


def test_a_quotient_has_the_range_of_a_mean_where_the_limits_cut_something_off() -> None:
    described = stage(kept={})
    described["metrics"]["orders"]["kept"] = KEPT
    described["metrics"]["revenue"]["kept"] = KEPT | {"share": 0.8, "divided_by": 0.8}
    found = made({"basket": "revenue / orders"}, described, table()).slice(0, 2)
    value, low, high = (np.array(found.column(f"basket{end}").to_pylist()) for end in ("", "_noise_low", "_noise_high"))
    # With an interval that is as long to both sides, this is what a mean has whose rows and sum lose as much.
    shares = KeptShare(share=0.8, stddev=0.01), KeptShare(share=0.9, stddev=0.01)
    for at in range(2):
        for end, bar in (("low", value - low), ("high", high - value)):
            mean = ranges_of_means(value[at : at + 1], bar[at : at + 1], *shares, GROUP)
            assert found.column(f"basket_{end}").to_pylist()[at] == pytest.approx(getattr(mean, end)[0])
            assert found.column("basket_estimate").to_pylist()[at] == pytest.approx(mean.estimate[0])


@pytest.mark.parametrize("text", ["-1 * revenue / orders", "revenue / (-orders)", "-(revenue / orders)"])
def test_the_range_of_a_quotient_below_zero_is_that_of_the_quotient_above_it(text: str) -> None:
    described = stage(kept={})
    described["metrics"]["orders"]["kept"] = KEPT
    described["metrics"]["revenue"]["kept"] = KEPT | {"share": 0.8, "divided_by": 0.8}
    found = made({"above": "revenue / orders", "below": text}, described, table()).slice(0, 2)
    ends = {end: [np.array(found.column(f"{name}_{end}").to_pylist()) for name in ("above", "below")] for end in ENDS}
    for end, other in (("low", "high"), ("high", "low"), ("estimate", "estimate")):
        assert ends[end][1] == pytest.approx(-ends[other][0])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"why": "unknown"}, "what the limits cut off of revenue is not known well enough"),
        ({"share": 0.4, "divided_by": 0.4}, "what the limits cut off of revenue is not known well enough"),
        ({"divided_by": None}, "what the limits cut off of revenue is not known well enough"),
    ],
)
def test_there_is_no_range_where_nobody_knows_what_is_cut_off(change: dict[str, Any], why: str) -> None:
    described = stage(kept={})
    described["metrics"]["orders"]["kept"] = KEPT
    described["metrics"]["revenue"]["kept"] = KEPT | change
    (one,) = derived_columns.of_stage(described, {"basket": "revenue / orders"}, table().column_names)
    assert one.how["kept"] == {"why": why}
    found = derived_columns.added(table(), [one], ranged=True)
    assert found.column("basket_high").null_count == 4
    assert found.column("basket").null_count == 2


def test_a_sum_that_limits_may_make_larger_and_an_expression_have_no_range() -> None:
    described = stage(kept={})
    statistic = "sum(price in [-5.0, 20.0], values)"
    described["metrics"]["revenue"] = entry("sum", 40.0, statistic, kept=KEPT)
    described["metrics"]["orders"]["kept"] = KEPT
    of_two, of_more = derived_columns.of_stage(
        described, {"a": "revenue / orders", "b": "1 - revenue / orders"}, table().column_names
    )
    assert "of revenue" in of_two.how["kept"]["why"]
    assert of_more.how["kept"]["why"] == derived_columns.NO_QUOTIENT


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (entry("mean", 0.5, "rows"), "does not say what noise is in revenue"),
        (entry("sum", 40.0, SUM, law="unheard of"), "does not say what noise is in revenue"),
        (entry("sum", 40.0, SUM) | {"stddev": 41.0}, "does not say what noise is in revenue"),
        (entry("sum", 0.0, SUM), "does not say what noise is in revenue"),
        ({}, "does not say what noise is in revenue"),
        ({"kind": "sum", "statistics": {SUM: None}}, "does not say what noise is in revenue"),
    ],
)
def test_noise_that_a_manifest_does_not_tell_gives_no_number(changed: dict[str, Any], words: str) -> None:
    described = stage()
    described["metrics"]["revenue"] = changed
    (one,) = derived_columns.of_stage(described, {"basket": "revenue / orders"}, table().column_names)
    assert words in one.how["why"]
    found = derived_columns.added(table(), [one], ranged=False)
    assert found.column("basket").null_count == 4


def test_a_name_that_was_not_released_gives_no_number() -> None:
    (one,) = derived_columns.of_stage(stage(), {"basket": "revenue / visits"}, table().column_names)
    assert one.how["why"] == "visits is no released count or sum of this table"


def test_a_column_that_is_called_like_a_statistic_changes_no_noise() -> None:
    odd = "not_null(x in [0.0, 8.0], values from the middle)"
    assert isinstance(part_noise.noise_of(["orders"], {"orders": entry("count", 5.0, odd)}), part_noise.PartNoise)


def test_names_that_meet_another_column_are_refused() -> None:
    for name in ("product", "Orders", "orders_stddev"):
        with pytest.raises(RequestError, match="whose name another column has"):
            derived_columns.refuse_taken([name], table().column_names, ranged=False)
    with pytest.raises(RequestError, match="whose name another column has"):
        derived_columns.refuse_taken(["a", "a_noise_low"], [], ranged=False)


def test_a_file_gets_other_formulas_in_place_of_those_that_it_has(tmp_path: pathlib.Path) -> None:
    paths = [tmp_path / f"{number}" / "weekly.parquet" for number in range(3)]
    for path in paths:
        path.parent.mkdir()
    pa.parquet.write_table(table(), paths[0])
    described = stage(derived=derived_columns.write(paths[0], paths[1], stage(), {"basket": "revenue / orders"}))
    said = derived_columns.write(paths[1], paths[2], described, {"twice": "2 * orders"})
    assert list(said) == ["twice"]
    found = pa.parquet.read_table(paths[2])
    assert found.column_names == [*table().column_names, "twice", "twice_noise_low", "twice_noise_high"]
    assert found.select(table().column_names).equals(table())


def test_a_file_without_rows_has_the_columns(tmp_path: pathlib.Path) -> None:
    pa.parquet.write_table(table().slice(0, 0), tmp_path / "a.parquet")
    derived_columns.write(tmp_path / "a.parquet", tmp_path / "b.parquet", stage(), {"basket": "revenue / orders"})
    found = pa.parquet.read_table(tmp_path / "b.parquet")
    assert (found.num_rows, found.schema.field("basket").type) == (0, pa.float64())
