"""Advice names what stands out, what weighs most first, and is silent about what is as it should be."""

from typing import Any

import pytest

from dp_pipelines.extensions.check.advice import advice, percent


def part(share: float | None, number: float = 10) -> dict[str, Any]:
    return {"number": number, "share": share}


def table(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "table": "", "rows": 100, "lookups": [], "shaped": 100, "columns": [],
        "without_unit": {"unit": ["customer"], **part(0.0)},
    }  # fmt: skip
    return base | changes


def bound(kept: float, others: dict[int, float], value: int = 8) -> dict[str, Any]:
    listed = [{"value": other, "rows_kept": part(share)} for other, share in others.items()]
    return {
        "bound": "max_partitions_contributed",
        "value": value,
        "rows_kept": part(kept),
        "units_cut": part(0.1),
        "others": listed,
    }


def stage(**changes: Any) -> dict[str, Any]:
    level = {"partition_by": ["week"], "groups": 50, "published": part(1.0), "published_rows": part(1.0), "sizes": []}
    base: dict[str, Any] = {
        "stage": "weekly",
        "units": 100,
        "largest_unit": part(0.02),
        "bounds": [bound(1.0, {2: 0.6, 4: 0.9})],
        "clips": [],
        "levels": [level],
    }
    return base | changes


def said(
    tables: list[dict[str, Any]] | None = None, join: Any = None, stages: list[dict[str, Any]] | None = None
) -> list[str]:
    return advice(
        {
            "tables": [table()] if tables is None else tables,
            "join": join,
            "stages": [stage()] if stages is None else stages,
        }
    )


def test_nothing_is_said_of_what_is_as_it_should_be() -> None:
    assert said() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": 0}, "There are no rows."),
        ({"in_window": part(0.0, 0)}, "No row is in the run's window"),
        ({"where": {**part(0.0, 0), "null": part(0.0)}}, "where keeps no row."),
        ({"where": {**part(0.5), "null": part(0.4)}}, "where is neither true nor false for 40% of rows"),
        ({"columns": [{"column": "paid_at", "of": "source", "rows": 100, "nulls": part(1.0)}]},
         "Column paid_at is null in all rows: check its type and format."),
        ({"columns": [{"column": "week", "of": "columns", "rows": 100, "nulls": part(0.25)}]},
         "Column week is null in 25% of rows: where an expression fails, it is null."),
        ({"without_unit": {"unit": ["customer"], **part(0.03)}}, "3% of rows have no privacy unit (customer is null)"),
        ({"lookups": [{"table": "products.parquet", "on": ["sku"], "without_match": part(0.37), "null_key": part(0.02)}]},
         "37% of rows have no match in lookup products.parquet: its columns are null there. For 2%, sku is null."),
    ],
)  # fmt: skip
def test_each_fault_of_rows_has_a_sentence(changes: dict[str, Any], words: str) -> None:
    (text,) = said([table(**changes)], stages=[])
    assert text.startswith(words)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"units": 0}, "weekly: no row of a unit reaches this stage."),
        ({"largest_unit": part(0.23)}, "weekly: one unit has 23% of all rows. If it is nobody in particular, such as one id"),
        ({"unlisted": part(0.5)}, "weekly: 50% of the rows are in no listed partition"),
        ({"bounds": [bound(0.6, {4: 0.3, 16: 0.8, 32: 0.97})]},
         "weekly: max_partitions_contributed: 8 keeps 60% of the rows. 32 would keep 97%, with more noise."),
        ({"bounds": [bound(0.6, {4: 0.3, 16: 0.7, 32: 0.8})]},
         "weekly: max_partitions_contributed: 8 keeps 60% of the rows. 32 would keep 80%, with more noise."),
        ({"bounds": [bound(1.0, {2: 0.9, 4: 1.0, 16: 1.0})]},
         "weekly: max_partitions_contributed: 8 is wider than these rows need: 4 would keep 100%, with less noise."),
        ({"clips": [{"metric": "revenue", "column": "price", "of_sums": False, "low": 0.0, "high": 20.0,
                     "below": part(0.0), "above": part(0.07)}]},
         "weekly: 7% of the values of price are above max_value of revenue, 20."),
        ({"levels": [{"partition_by": ["week"], "groups": 1203, "published": part(0.1, 119.4), "published_rows": part(0.6),
                      "sizes": []}]},
         "weekly: of 1,203 groups by week about 119 are likely to be published, with 60% of the rows."),
        ({"levels": [{"partition_by": ["week"], "groups": 2, "published": part(1.0), "published_rows": part(1.0), "sizes": [],
                      "listed": 10, "empty": 8}]},
         "weekly: 8 of 10 listed partitions by week have no row"),
        ({"unit_columns": {"max_rows_per_unit": 5, "kept_by_cap": part(0.5), "columns": []}},
         "weekly: max_rows_per_unit: 5 keeps 50% of the rows."),
    ],
)  # fmt: skip
def test_each_fault_of_a_stage_has_a_sentence(changes: dict[str, Any], words: str) -> None:
    (text,) = said(stages=[stage(**changes)])
    assert text.startswith(words)


def test_a_large_share_is_not_told_of_a_unit_among_few() -> None:
    assert said(stages=[stage(units=20, largest_unit=part(0.3))]) == []


def test_a_join_whose_units_differ_is_told_from_one_whose_days_do() -> None:
    def side(**changes: Any) -> dict[str, Any]:
        base = {"table": "orders", "max_rows_per_unit": 9, "kept_by_cap": part(1.0), "without_match": part(0.0), "units": 10,
                "units_in_both": part(1.0)}  # fmt: skip
        return base | changes

    other = side(table="visits")
    (days,) = said(join={"tables": [side(without_match=part(0.4)), other], "pairs": 3}, stages=[])
    (units,) = said(
        join={"tables": [side(without_match=part(0.4), units_in_both=part(0.7)), other], "pairs": 3}, stages=[]
    )
    assert days == "40% of rows of orders meet no row of the other table."
    assert units.startswith(days + " 30% of its units are not in the other table at all")
    (capped,) = said(join={"tables": [side(kept_by_cap=part(0.5)), other], "pairs": 3}, stages=[])
    assert capped == "join.max_rows_per_unit: 9 keeps 50% of the rows of orders."


def test_what_weighs_most_comes_first() -> None:
    columns = [
        {"column": name, "of": "source", "rows": 9, "nulls": part(share)}
        for name, share in (("a", 0.3), ("b", 1.0), ("c", 0.6))
    ]
    assert [text.split()[1] for text in said([table(columns=columns)], stages=[])] == ["b", "c", "a"]


def test_no_share_is_rounded_to_all_or_to_nothing() -> None:
    assert [percent(share) for share in (0.0, 1e-9, 0.99999, 1.0)] == ["0%", "under 0.1%", "99.9%", "100%"]
