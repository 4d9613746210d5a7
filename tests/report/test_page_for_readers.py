"""The page of a release as its readers need it: its order, its headline numbers, one chart for each metric, its words.

In: pages of made-up tables. Holds: each rule is a sentence about what stands on the page. Not covered: what a browser makes of it
(`test_report_in_a_browser`).
"""

import pathlib
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.report.report import render
from dp_pipelines.report.words import headline
from dp_pipelines.report.words.headline import Headline
from tests.report.page import Page, barriers, groceries, manifest, metric, page, spread_groceries, spread_manifest

CLOCK = re.compile(r"\b\d(?:\.\d+)?[GMk]\b")
"""A number with a letter for thousands, millions or billions."""


def stage(**changed: Any) -> dict[str, Any]:
    """A manifest of one stage with counts of orders and of customers, and a sum."""
    entries = {
        "orders": {"kind": "count", "statistics": {"rows": {}}},
        "customers": {"kind": "privacy_id_count", "statistics": {"units": {}}},
        "revenue": {"kind": "sum", "statistics": {"sum(price in [0.0, 60.0], values)": {}}},
    }
    limits = ["at most 4 rows of one CUSTOMER_ID are counted", "price below 0 counts as 0, above 60 as 60"]
    return manifest(stages=[{"name": "weekly", "metrics": entries, "limits": limits, **changed}])


def by_city(rows: int, **keys: Any) -> dict[str, Any]:
    """A table with all three metrics, one row for each city."""
    sizes = 1000.0 + 100.0 * (np.arange(rows) * 7 % rows)
    cities = {"city": [f"city {at:02d}" for at in range(rows)]}
    return {**(keys or cities), **metric("orders", sizes, 10.0), **metric("customers", sizes / 2, 2.3),
            **metric("revenue", sizes * 3e6, 5e6)}  # fmt: skip


def headings(html: str) -> list[str]:
    """The words of the headings of the sections, in order."""
    return [Page(found).words for found in re.findall(r"<h2[^>]*>.*?</h2>", html)]


def test_readers_come_first_and_auditors_last(tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, by_city(5), stage())
    expected = ["weekly", "How to read the numbers", "What was limited", "How private is this?", "Technical details"]
    assert headings(html) == expected
    before, after = html.split('<h2 id="technical">')
    for technical in (manifest()["plan"], "ab" * 32, "Noise scale"):
        assert technical not in before
        assert technical in after


def test_a_long_page_has_a_table_of_contents_and_a_short_one_has_none(tmp_path: pathlib.Path) -> None:
    assert '<nav class="toc"' in page(tmp_path, by_city(5), stage())
    assert '<nav class="toc"' not in page(tmp_path, {"city": ["a", "b"], **metric("orders", [500.0, 600.0])}, {})


def test_sums_are_headlines_with_their_range_and_people_are_not_added_up(tmp_path: pathlib.Path) -> None:
    words = Page(page(tmp_path, by_city(5), stage())).words
    bar = 1.96 * 10 * 5**0.5
    assert f"orders 6,000 ± {bar:.0f} between {6000 - bar:.0f}".replace("5956", "5,956") in words
    assert "sum of the 5 groups shown" in words
    assert "customers cannot be added up: one of the customers may be in several groups and counts in each." in words
    head = words[: words.index("random noise was added")]
    assert "revenue 18.000 billion ± 0.022 billion" in head
    assert not re.search(r"customers \d", head)


def test_a_sum_over_more_rows_than_the_page_shows_says_so(tmp_path: pathlib.Path) -> None:
    assert "sum of the 201 groups published" in Page(page(tmp_path, by_city(201), stage())).words


def test_a_total_is_a_headline_and_no_chart(tmp_path: pathlib.Path) -> None:
    total = {name: column for name, column in by_city(1).items() if name != "city"}
    read = Page(page(tmp_path, total, stage(partition_by=[])))
    assert "customers 500 ± 5 between 495 and 505, as far as noise goes; total of weekly" in read.words
    assert read.plots == []


@pytest.mark.parametrize("shown", [{"groups": 9, "rows": 5, "order_by": [], "words": ["some"]}, None])
def test_rows_that_were_chosen_by_their_numbers_are_not_added_up(tmp_path: pathlib.Path, shown: Any) -> None:
    html = page(tmp_path, by_city(5), stage(**({} if shown is None else {"shown": shown})))
    assert ("sum of the 5 groups shown" in Page(html).words) == (shown is None)
    top = page(tmp_path, by_city(5), stage(top={"k": 5, "by": "orders"}))
    assert "sum of the 5 groups" not in Page(top).words


def test_each_total_stands_under_the_name_of_its_stage() -> None:
    """Stages may count different rows: a total of returns is not one of orders, and takes its place no more."""
    totals = [
        Headline(name="revenue", value="1", bar="1", low="0", high="2", scope=f"total of {name}", published=True)
        for name in ("returns", "sales")
    ]
    assert headline.first(totals) == totals


def test_the_top_of_a_rollup_is_a_headline_and_its_levels_are_words(tmp_path: pathlib.Path) -> None:
    table = {
        "level": [0, 1, 1, 1], "city": pa.array([None, "a", "b", None]), "rest": [False, False, False, True],
        **metric("orders", [1000.0, 600.0, 300.0, 100.0], 10.0), **metric("orders_raw", [1001.0, 601.0, 301.0, 99.0], 10.0),
    }  # fmt: skip
    entries = {
        "orders": {"kind": "count", "rolled_up": "sum"},
        "orders_raw": {"kind": "count", "raw_of": "orders", "rolled_up": "sum"},
    }
    rolled = stage(metrics=entries, partition_by=["level", "city", "rest"], rollup={"levels": [[], ["city"]]})
    read = Page(page(tmp_path, table, rolled))
    assert "orders 1,000 ± 20" in read.words
    assert "total of weekly" in read.words
    assert read.inside("th", "i") == ["all", "rest"]
    assert read.inside("thead", "tr", "th", "bdi")[:2] == ["city", "orders"]


def test_counts_have_no_decimals_and_their_bars_are_rounded_up(tmp_path: pathlib.Path) -> None:
    read = Page(page(tmp_path, by_city(5), stage()))
    assert "± 5" in read.inside("td", "span")  # 1.96 * 2.3 is 4.5
    assert not [cell for cell in read.inside("td", "span") if "." in cell]


def test_the_unit_has_a_name_and_each_limit_names_its_metric(tmp_path: pathlib.Path) -> None:
    words = Page(page(tmp_path, by_city(5), stage())).words
    assert "Each customer is protected" in words
    assert "at most 4 rows of one customer are counted revenue: price below 0 counts as 0, above 60 as 60" in words
    assert "customers : the number of different customers" in words
    assert "revenue : the sum of price" in words
    assert words.count("CUSTOMER_ID") == 1  # where the exact unit is told


def test_nothing_is_said_where_all_is_well_and_a_warning_stands_at_its_metric(tmp_path: pathlib.Path) -> None:
    assert "differ from zero" not in Page(page(tmp_path, by_city(5), stage())).words
    noisy = by_city(5) | metric("revenue", [1.0] * 5, 5e6)
    words = Page(page(tmp_path, noisy, stage())).words
    at = words.index("0 of 5 differ from zero")
    assert words.rindex("revenue : the sum", 0, at) > words.index("customers : the number")


def test_no_chart_repeats_another_and_each_says_what_it_shows(tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, groceries(), stage(partition_by=["product", "week"]))
    drawn = re.findall(r"<svg role=.*?</svg>\n</svg>|<svg role=.*?</svg>", html, re.DOTALL)
    assert len(drawn) == len(set(drawn)) >= 18
    for said in Page(html).plots:
        assert re.search(r"; lowest .+ at .+, highest .+ at .+; (rises|falls|no trend beyond the noise)$", said), said


@pytest.mark.parametrize(
    ("name", "values", "shown"),
    [
        ("week", [10, 2, 1], ["1", "2", "10"]),
        ("month_no", [10, 2, 1], ["1", "2", "10"]),
        ("hour", [10, 2, 1], ["1", "2", "10"]),
        ("isoWeek", [10, 2, 1], ["1", "2", "10"]),
        ("day", [20260201, 20260131, 20260130], ["20260130", "20260131", "20260201"]),
        ("yearweek", [202601, 202552, 202551], ["202551", "202552", "202601"]),
        ("quarter", ["2026-Q1", "2025-Q4", "2025-Q1"], ["2025-Q1", "2025-Q4", "2026-Q1"]),
        ("store", [10, 2, 1], None),
        ("weekly_store", [10, 2, 1], None),
    ],
)
def test_a_number_that_counts_time_runs_from_left_to_right(
    tmp_path: pathlib.Path, name: str, values: list[Any], shown: list[str] | None
) -> None:
    read = Page(page(tmp_path, {name: values, **metric("orders", [500.0, 900.0, 700.0])}, {}))
    assert any("over time" in plot for plot in read.plots) == (shown is not None)
    if shown is not None:
        assert [text for text in read.inside("svg", "text") if text in shown] == shown
        assert [text for text in read.inside("th", "bdi") if text in shown] == shown  # in the table too


def test_categories_are_bars_by_size_and_the_others_are_counted(tmp_path: pathlib.Path) -> None:
    read = Page(page(tmp_path, by_city(14), stage()))
    sizes = sorted((1000 + 100 * (at * 7 % 14) for at in range(14)), reverse=True)
    assert f"Not drawn: 4 others together: {sum(sizes[10:]):,} ± 39 ." in read.words
    assert "Not drawn: 4 others in the table ." in read.words  # customers
    assert read.plots[0].startswith("The largest orders: city ")


def test_two_keys_are_panels_and_a_heat_map_only_if_both_are_long(tmp_path: pathlib.Path) -> None:
    def plots(first: int, second: int) -> list[str]:
        keys = {
            "shop": np.repeat([f"s{at}" for at in range(first)], second),
            "tier": [f"t{at}" for at in range(second)] * first,
        }
        return Page(page(tmp_path, {**keys, **metric("n", 900.0 + np.arange(first * second))}, {})).plots

    assert [plot.partition(":")[0] for plot in plots(3, 20)] == ["n of s2", "n of s1", "n of s0"]
    assert plots(13, 13)[0].startswith("Heat map of n: 13 of shop down, 13 of tier across")


def test_axes_write_thousands_out_and_say_million_and_billion(tmp_path: pathlib.Path) -> None:
    texts = Page(page(tmp_path, by_city(5, week=[1, 2, 3, 4, 5]), stage())).inside("svg", "text")
    assert "1,000" in texts
    assert "billion" in texts
    assert not [text for text in texts if CLOCK.search(text)]
    assert CLOCK.search("4G")


def test_the_largest_is_named_with_what_is_too_close_to_tell(tmp_path: pathlib.Path) -> None:
    table = {"week": ["2026-W01", "2026-W02", "2026-W03"], **metric("orders", [900.0, 895.0, 100.0], 10.0)}
    words = Page(page(tmp_path, table, stage())).words
    assert "Highest: 2026-W02" not in words
    assert "Highest: 2026-W01 with 900 ± 20. 1 other is too close to tell apart." in words
    pairs = {
        "city": ["a", "b"] * 2,
        "week": ["2026-W01"] * 2 + ["2026-W02"] * 2,
        **metric("orders", [10.0, 900.0, 500.0, 500.0]),
    }
    assert (
        "All 2 groups shown together, highest: 2026-W02 with 1,000 ± 28." in Page(page(tmp_path, pairs, stage())).words
    )


def test_a_typical_page_is_small(tmp_path: pathlib.Path) -> None:
    assert len(page(tmp_path, groceries(52, 12), stage(partition_by=["product", "week"])).encode()) < 300_000


def test_more_than_one_and_one_agree_in_number(tmp_path: pathlib.Path) -> None:
    words = Page(
        page(tmp_path, {"city": ["a"], **metric("orders", [500.0])}, stage(metrics={"orders": {"kind": "count"}}))
    ).words
    for wrong in ("1 rows", "1 groups", "1 others", "1 mechanisms", "1 tables"):
        assert wrong not in words


def test_the_page_has_no_barriers(tmp_path: pathlib.Path) -> None:
    several = {"stages": [{**manifest()["stages"][0], "name": name} for name in ("weekly", "again")]}
    pa.parquet.write_table(pa.table(spread_groceries(3, 3)), tmp_path / "weekly.parquet")
    tables = {"weekly": tmp_path / "weekly.parquet", "again": tmp_path / "weekly.parquet"}
    for html in (page(tmp_path, by_city(5), stage()), render({**spread_manifest(), **several}, tables), render({}, {})):
        assert barriers(html) == []


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ("<h4>deep</h4>", "h4 after h2"),
        ("<table><tr><th>x</th></tr></table>", "th without a scope"),
        ("<table></table>", "table without a caption"),
        ('<svg role="img"></svg>', "svg without a name"),
        ('<p tabindex="2">first</p>', "p in an order of its own"),
        ('<p aria-labelledby="nowhere"></p>', "no nowhere"),
        ('<b id="read"></b>', "two ids read"),
        ('<b role="region" aria-label="Table of weekly"></b>', "two regions Table of weekly"),
        ('<section aria-labelledby="read"></section>', "two regions read"),
    ],
)
def test_a_barrier_is_found(tmp_path: pathlib.Path, planted: str, words: str) -> None:
    html = page(tmp_path, by_city(5), stage())
    assert words in barriers(html.replace("</main>", f"{planted}</main>"))
