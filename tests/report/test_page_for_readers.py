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

from dp_pipelines.release.ranges import KeptShare
from dp_pipelines.report.report import render
from dp_pipelines.report.words import headline
from dp_pipelines.report.words.headline import Headline
from tests.report.page import (
    Page,
    barriers,
    groceries,
    manifest,
    metric,
    page,
    ranged,
    ranged_manifest,
    spread_groceries,
    spread_manifest,
)

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


def test_a_key_called_like_a_part_of_a_metric_stays_where_the_metric_has_a_label(tmp_path: pathlib.Path) -> None:
    words = {"stages": {"weekly": {"metrics": {"n": {"label": "Orders"}}}}}
    described = {"name": "weekly", "partition_by": ["n_low"], "metrics": {"n": {"kind": "count"}}}
    columns = {"n_low": ["tea", "coffee"], **metric("n", [100.0, 200.0])}
    found = Page(page(tmp_path, columns, manifest(stages=[described], presentation=words)))
    assert found.inside("tr", "th", "bdi")[:4] == ["n_low", "Orders", "coffee", "tea"]


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


def test_a_table_of_contents_leads_to_each_section(tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, by_city(5), stage())
    listed = re.search(r'<nav class="toc".*?</nav>', html, re.DOTALL)
    assert listed is not None
    assert Page(listed[0]).inside("li", "a") + Page(listed[0]).inside("a", "bdi") == [*headings(html)[1:], "weekly"]


def test_sums_are_headlines_and_people_are_not_added_up(tmp_path: pathlib.Path) -> None:
    words = Page(page(tmp_path, by_city(5), stage())).words
    bar = 1.96 * 10 * 5**0.5
    assert (
        f"orders 6,000 ± {bar:.0f} As counted; in truth likely at least {6000 - bar:,.0f}: what the limits left out"
        in words
    )
    assert "Sum of the 5 groups shown." in words
    assert "customers cannot be added up: one of the customers may be in several groups and counts in each." in words
    head = words[: words.index("random noise was added")]
    assert "revenue 18.000 billion ± 0.022 billion" in head
    assert not re.search(r"customers \d", head)
    assert "between" not in head.partition("random noise")[0]  # an error bar alone says nothing of what was cut off


@pytest.mark.parametrize(
    ("clamp", "limits", "words"),
    [
        ("0.0, 60.0", 1, "As counted; in truth likely at least"),
        ("-5.0, 60.0", 1, "As counted; how much the limits change it is not known."),
        ("0.0, 60.0", 0, "Between 5,956 and 6,044."),
    ],
)
def test_a_sum_is_at_least_what_was_counted_only_where_limits_make_it_smaller(
    tmp_path: pathlib.Path, clamp: str, limits: int, words: str
) -> None:
    entries = {"revenue": {"kind": "sum", "statistics": {f"sum(price in [{clamp}], values)": {}}}}
    table = {"city": ["a", "b", "c", "d", "e"], **metric("revenue", [1200.0] * 5, 10.0)}
    content = stage(metrics=entries, limits=["at most 4 rows of one CUSTOMER_ID are counted"] * limits)
    head = Page(page(tmp_path, table, content)).words.partition("random noise")[0]
    assert words in head
    assert head.count("As counted") == limits


def test_of_joined_rows_people_may_be_cut_off_too(tmp_path: pathlib.Path) -> None:
    entries, total = {"customers": {"kind": "privacy_id_count"}}, metric("customers", [500.0], 2.3)
    for limit, words in (
        ("at most 4 rows of one CUSTOMER_ID are counted", "customers 500 ± 5 Between 495 and 505. Total of weekly."),
        ("at most 4 rows of a and 4 rows of b of one CUSTOMER_ID are joined", "customers 500 ± 5 As counted; how much"),
        ("at most 2 rows of one CUSTOMER_ID are read", "customers 500 ± 5 As counted; how much"),
    ):
        content = stage(metrics=entries, partition_by=[], limits=[limit])
        assert words in Page(page(tmp_path, total, content)).words


@pytest.mark.parametrize(
    "words", ["at most 2 rows of one CUSTOMER_ID are read", "at most 9 rows of a and 9 of b are joined"]
)
def test_a_count_behind_a_limit_on_what_is_read_may_be_too_large_as_well(tmp_path: pathlib.Path, words: str) -> None:
    """Of two rows that are read, a condition such as `line <= 2` passes for people who have five."""
    content = stage(metrics={"orders": {"kind": "count"}}, partition_by=[], limits=[words])
    head = Page(page(tmp_path, metric("orders", [700.0], 5.0), content)).words.partition("random noise")[0]
    assert "As counted; how much the limits change it is not known." in head


def test_a_sum_over_more_rows_than_the_page_shows_says_so(tmp_path: pathlib.Path) -> None:
    assert "Sum of the 201 groups published." in Page(page(tmp_path, by_city(201), stage())).words


@pytest.mark.parametrize("made_up", [True, False])
def test_no_sentence_says_which_made_up_group_is_the_highest(tmp_path: pathlib.Path, made_up: bool) -> None:
    content = stage() | ({"synthetic": {"words": "made-up rows"}} if made_up else {})
    html = page(tmp_path, by_city(5), content)
    assert ("Highest" in Page(html).words, 'class="finding"' in html) == (not made_up, not made_up)


def test_a_total_is_a_headline_and_no_chart(tmp_path: pathlib.Path) -> None:
    total = {name: column for name, column in by_city(1).items() if name != "city"}
    read = Page(page(tmp_path, total, stage(partition_by=[])))
    assert "customers 500 ± 5 Between 495 and 505. Total of weekly." in read.words
    assert read.plots == []


@pytest.mark.parametrize("shown", [{"groups": 9, "rows": 5, "order_by": [], "words": ["some"]}, None])
def test_rows_that_were_chosen_by_their_numbers_are_not_added_up(tmp_path: pathlib.Path, shown: Any) -> None:
    html = page(tmp_path, by_city(5), stage(**({} if shown is None else {"shown": shown})))
    assert ("Sum of the 5 groups shown" in Page(html).words) == (shown is None)
    top = page(tmp_path, by_city(5), stage(top={"k": 5, "by": "orders"}))
    assert "Sum of the 5 groups" not in Page(top).words


@pytest.mark.parametrize(
    "chosen",
    [{"shown": {"groups": 99, "rows": 60, "order_by": [], "words": []}}, {"top": {"k": 60, "by": "orders"}}, {}],
)
def test_charts_add_up_no_rows_that_were_chosen_by_their_numbers(
    tmp_path: pathlib.Path, chosen: dict[str, Any]
) -> None:
    """Of many groups near zero, those that pass a limit are those whose noise was large: their sum is noise that was selected."""
    words = Page(page(tmp_path, by_city(60), stage(**chosen))).words
    assert "others together" in words or "not drawn" in words.lower()
    assert ("others together:" in words) == (not chosen)
    weeks = {
        "city": ["a", "b"] * 3,
        "week": [f"2026-01-{day:02d}" for day in (5, 5, 12, 12, 19, 19)],
        **metric("orders", [100.0, 200.0] * 3, 5.0),
    }
    words = Page(page(tmp_path, weeks, stage(partition_by=["city", "week"], **chosen))).words
    assert ("summed over the 2 published values of city" in words) == (not chosen)


def test_a_comparison_alone_says_which_arm_is_better(tmp_path: pathlib.Path) -> None:
    assert 'class="finding"' in page(tmp_path, by_city(5), stage())
    assert 'class="finding"' not in page(
        tmp_path, by_city(5), stage(compare={"by": "city", "arms": ["city 00", "city 01"]})
    )


def test_a_total_is_called_by_the_title_of_its_stage(tmp_path: pathlib.Path) -> None:
    total = {name: column for name, column in by_city(1).items() if name != "city"}
    words = {"stages": {"weekly": {"title": "The whole business"}}}
    content = stage(partition_by=[]) | {"presentation": words}
    assert "Total of “The whole business”." in Page(page(tmp_path, total, content)).words


def test_each_total_stands_under_the_name_of_its_stage() -> None:
    """Stages may count different rows: a total of returns is not one of orders, and takes its place no more."""
    totals = [
        Headline(name="revenue", value="1", bar="1", published=True, notes=(f"Total of {name}",))
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
    assert "Total of weekly" in read.words
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


def test_rows_without_a_unit_are_said_to_count_nowhere_and_never_how_many_there_are(tmp_path: pathlib.Path) -> None:
    words = Page(page(tmp_path, groceries(), manifest() | {"privacy_unit": "value of customer_id"})).words
    dropped = "Rows that belong to no customer , because it is null there, are dropped and counted in no number."
    assert f"{dropped} How many there are is not published." in words


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
        ("week", [1, 52, 2, 51], ["51", "52", "1", "2"]),
        ("week", [1, 53, 2, 51, 52], ["51", "52", "53", "1", "2"]),
        ("month", [1, 2, 3, 11, 12], ["11", "12", "1", "2", "3"]),
        ("week", [52, 1, 20], ["1", "20", "52"]),
        ("hour", [1, 2, 23], ["1", "2", "23"]),
        ("month", [1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12], [str(month) for month in range(1, 13) if month != 3]),
        ("store", [10, 2, 1], None),
        ("stay_days", [10, 2, 1], None),
        ("candidate", [10, 2, 1], None),
        ("weekly_store", [10, 2, 1], None),
    ],
)
def test_a_number_that_counts_time_runs_from_left_to_right(
    tmp_path: pathlib.Path, name: str, values: list[Any], shown: list[str] | None
) -> None:
    numbers = [500.0 + 100 * (at * 7 % 5) for at in range(len(values))]
    read = Page(page(tmp_path, {name: values, **metric("orders", numbers)}, {}))
    assert any("over time" in plot for plot in read.plots) == (shown is not None)
    if shown is not None:
        assert [text for text in read.inside("svg", "text") if text in shown] == shown
        assert [text for text in read.inside("th", "bdi") if text in shown] == shown  # in the table too
        turned = shown[0] != str(min(values))
        assert ("are shown over the turn of a year" in read.words) == turned


def rolled_up_weeks(cities: int, *, total_of_weeks: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """A rollup of weeks and cities whose fitted bars are half as long as those before; and its manifest."""
    weeks, finest = ["2026-W01", "2026-W02"], 2 if total_of_weeks else 1
    rows: list[tuple[int, str | None, str | None, float]] = [(0, None, None, 1900.0)]
    rows += [(1, week, None, number) for week, number in zip(weeks, (960.0, 940.0), strict=True) if total_of_weeks]
    for week, number in zip(weeks, (960.0, 940.0), strict=True):
        rows += [(finest, week, f"city {at}", number / cities) for at in range(cities)]
    table = {"level": [row[0] for row in rows], "week": pa.array([row[1] for row in rows], pa.string()),
             "city": pa.array([row[2] for row in rows], pa.string()), "rest": [False] * len(rows)}  # fmt: skip
    numbers = [row[3] for row in rows]
    table |= metric("orders", numbers, 5.0) | metric("orders_raw", numbers, 10.0)
    entries = {
        "orders": {"kind": "count", "rolled_up": "sum"},
        "orders_raw": {"kind": "count", "raw_of": "orders", "rolled_up": "sum"},
    }
    levels = [[], ["week"], ["week", "city"]] if total_of_weeks else [[], ["week", "city"]]
    return table, stage(metrics=entries, partition_by=["level", "week", "city", "rest"], rollup={"levels": levels})


def test_numbers_of_a_rollup_are_told_apart_by_the_noise_that_is_independent(tmp_path: pathlib.Path) -> None:
    """Parts that were made to add up are not independent: their bars say less of a difference than they seem to."""
    table, content = rolled_up_weeks(3, total_of_weeks=True)
    words = Page(page(tmp_path, table, content)).words
    # 20 apart: more than 1.4 times the fitted bar of 10, and less than 1.4 times the bar of 20 before.
    assert "No week is clearly the highest, over all groups, as counted: the other one may equal or beat " in words
    apart, independent = rolled_up_weeks(3, total_of_weeks=True)
    apart |= metric("orders_raw", apart["orders"].to_pylist(), 5.0)
    words = Page(page(tmp_path, apart, independent)).words
    assert "Highest week, over all groups, as counted: 2026-W01 with 960 ± 10." in words


def test_parts_of_a_rollup_are_not_added_up_as_if_independent(tmp_path: pathlib.Path) -> None:
    table, content = rolled_up_weeks(3, total_of_weeks=False)
    assert "summed over" not in Page(page(tmp_path, table, content)).words
    cities = {name: column for name, column in rolled_up_weeks(12, total_of_weeks=False)[0].items() if name != "week"}
    content["stages"][0] |= {"partition_by": ["level", "city", "rest"], "rollup": {"levels": [[], ["city"]]}}
    cities = {name: column[:13] for name, column in cities.items()}
    assert "Not drawn: 2 others in the table" in Page(page(tmp_path, cities, content)).words


def test_ranges_of_true_numbers_are_shaded_and_stand_in_a_column_of_their_own(tmp_path: pathlib.Path) -> None:
    weeks = {"week": ["2026-W01", "2026-W02", "2026-W03"], **metric("orders", [880.0, 1760.0, 440.0], 10.0)}
    html = page(tmp_path, ranged(weeks), ranged_manifest())
    words = Page(html).words
    assert "orders likely" in words
    assert "880 ± 20 1,000 860 … 1,240" in words  # counted, its estimate, its range
    assert "Shaded: where the true number is likely." in words
    (shade,) = re.findall(r'<path d="([^"]*)" style="fill: none; stroke: var\(--range\)', html)
    assert shade.count("M") == 3
    assert html.count('class="estimate dots"') == html.count('class="counted dots"') == 1
    cities = {"city": ["a", "b"], **metric("orders", [880.0, 1760.0], 10.0)}
    html = page(tmp_path, ranged(cities), ranged_manifest())
    (shade,) = re.findall(r'<path d="([^"]*)" style="fill: none; stroke: var\(--range\)', html)
    assert shade.count("M") == 2
    assert "about 1,000, likely 860 … 1,240" in Page(html).inside("svg", "text")


def test_where_nothing_was_measured_nothing_is_shaded(tmp_path: pathlib.Path) -> None:
    weeks = {"week": ["2026-W01", "2026-W02", "2026-W03"], **metric("orders", [880.0, 1760.0, 440.0], 10.0)}
    unknown = ranged(weeks, kept=KeptShare(share=0.5, stddev=0.01))  # of that, a group may have lost everything
    for html in (page(tmp_path, weeks, manifest()), page(tmp_path, unknown, ranged_manifest())):
        assert "var(--range)" not in html.partition("</style>")[2]
        assert 'class="estimate' not in html
        assert " data-ranges" not in html.partition("<script>")[0]
        assert "likely" not in Page(html.partition('id="limited"')[0]).words


def since_last_week(now: float, then: float, **changed: Any) -> dict[str, Any]:
    """A total of orders, and a manifest that knows that of the run before."""
    numbers = {"weekly": {"orders": [then, 10.0]}}
    before = {"run_id": "2026-W11", "day": "2026-03-16", "numbers": numbers, **changed}
    ledger = {**manifest()["ledger"], "drawn": "2026-03-23", "before": before}
    entries = {"orders": {"kind": "count", "statistics": {"rows": {}}}}
    described = stage(metrics=entries, partition_by=[])["stages"]
    return {"columns": metric("orders", [now], 10.0), "content": manifest(stages=described, ledger=ledger)}


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (1100.0, "Counted numbers: 100 ± 28 more than in run 2026-W11 , drawn on 2026-03-16 ."),
        (900.0, "Counted numbers: 100 ± 28 less than in run 2026-W11 , drawn on 2026-03-16 ."),
        # Beyond its bar, which one difference in twenty is without any change.
        (
            1035.0,
            "no clear change since run 2026-W11 , drawn on 2026-03-16 : 35 ± 28 more, which noise alone may make.",
        ),
        (1000.0, "no clear change since run 2026-W11 , drawn on 2026-03-16 : 0 ± 28 more, which noise alone may make."),
    ],
)
def test_a_change_since_the_run_before_is_told_only_beyond_the_noise(
    tmp_path: pathlib.Path, now: float, words: str
) -> None:
    read = Page(page(tmp_path, **since_last_week(now, 1000.0))).words
    assert words in read
    assert "Run 2026-W12 , week = 2026-W12 ; noise drawn on 2026-03-23" in read


def test_a_run_before_without_a_name_is_told_by_its_day_and_nothing_is_made_up(tmp_path: pathlib.Path) -> None:
    unnamed = since_last_week(1100.0, 1000.0, run_id=f"{'a' * 24}-{'b' * 24}")
    assert "100 ± 28 more than in the run before, drawn on 2026-03-16" in Page(page(tmp_path, **unnamed)).words
    for numbers in (
        {},
        {"weekly": {"orders": [None, 10.0]}},
        {"weekly": {"orders": "x"}},
        {"weekly": {"other": [1.0, 1.0]}},
    ):
        words = Page(page(tmp_path, **since_last_week(1100.0, 1000.0, numbers=numbers))).words
        assert " than in " not in words
        assert "no change" not in words


def test_a_sum_says_which_part_is_counted(tmp_path: pathlib.Path) -> None:
    cities = {"city": ["a", "b"], **metric("orders", [880.0, 1760.0], 10.0)}
    words = Page(page(tmp_path, ranged(cities), ranged_manifest())).words
    assert "orders 2,640 ± 28 About 88% (± 3%) of orders are counted. Sum of the 2 groups shown." in words


def test_a_total_has_the_range_of_the_true_number(tmp_path: pathlib.Path) -> None:
    total = ranged(metric("orders", [880.0], 10.0))
    content = ranged_manifest()
    content["stages"][0]["partition_by"] = []
    words = Page(page(tmp_path, total, content)).words
    assert "orders 1,000 Likely between 860 and 1,240. Counted: 880 ± 20. Total of weekly." in words
    assert words.partition("random noise")[0].count("etween") == 1  # one range beside one number


def test_large_numbers_without_a_bar_are_written_out(tmp_path: pathlib.Path) -> None:
    table = {"city": ["a", "b"], "typical": [1234567.0, 2.5], "typical_stddev": pa.array([None, None], pa.float64())}
    read = Page(page(tmp_path, table, stage(metrics={"typical": {"kind": "quantile"}})))
    assert "1,234,567" in read.inside("svg", "text")
    assert "e+06" not in read.words


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
    assert "Highest week, as counted: 2026-W01 with 900 ± 20; 1 other week may equal or beat it ( 2026-W02 )." in words
    pairs = {
        "city": ["a", "b"] * 2,
        "week": ["2026-W01"] * 2 + ["2026-W02"] * 2,
        **metric("orders", [10.0, 900.0, 500.0, 500.0]),
    }
    words = Page(page(tmp_path, pairs, stage())).words
    assert "Highest week, summed over the 2 published values of city, as counted: 2026-W02 with 1,000 ± 28." in words
    unlimited = Page(page(tmp_path, pairs, stage(limits=[]))).words
    assert "Highest week, summed over the 2 published values of city: 2026-W02 with 1,000 ± 28." in unlimited


def test_up_to_five_rivals_of_the_highest_are_named_and_more_are_counted(tmp_path: pathlib.Path) -> None:
    for close, words in (
        (5, "5 other cities may equal or beat it (c1, c2, c3, c4, c5)"),
        (6, "6 other cities may equal or beat it."),
    ):
        numbers = [900.0] + [895.0] * close + [100.0]
        table = {"city": [f"c{at}" for at in range(len(numbers))], **metric("orders", numbers, 10.0)}
        assert words in Page(page(tmp_path, table, stage())).words


def test_a_metric_that_adds_up_has_a_small_chart_of_its_sum_over_time(tmp_path: pathlib.Path) -> None:
    pairs = {"city": ["a", "a", "b", "b"], "week": ["2026-W01", "2026-W02"] * 2}
    table = {
        **pairs,
        **metric("orders", [10.0, 500.0, 900.0, 500.0]),
        **metric("customers", [10.0, 500.0, 900.0, 500.0]),
    }
    summed = [plot for plot in Page(page(tmp_path, table, stage())).plots if "summed over" in plot]
    assert summed == [
        "orders over time, summed over the 2 published values of city: 910 ± 28 at 2026-W01, 1,000 ± 28 at 2026-W02, "
        "2 points; lowest 910 ± 28 at 2026-W01, highest 1,000 ± 28 at 2026-W02; too few points for a trend"
    ]


def test_a_chart_of_a_sum_repeats_no_chart_of_another_stage(tmp_path: pathlib.Path) -> None:
    weeks, pairs = ["2026-W01", "2026-W02"], {"city": ["a", "a", "b", "b"]}
    tables = {
        "cities": {**pairs, "week": weeks * 2, **metric("orders", [10.0, 500.0, 900.0, 500.0])},
        "weeks": {"week": weeks, **metric("orders", [910.0, 1000.0])},
    }
    for name, columns in tables.items():
        pa.parquet.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
    entries = {"orders": {"kind": "count"}}
    keys = {"cities": ["city", "week"], "weeks": ["week"]}
    content = manifest(stages=[{"name": name, "partition_by": keys[name], "metrics": entries} for name in tables])
    html = render(content, {name: tmp_path / f"{name}.parquet" for name in tables})
    assert not [plot for plot in Page(html).plots if "summed over" in plot]


def test_rows_that_do_not_add_up_to_a_total_say_why(tmp_path: pathlib.Path) -> None:
    entries = {"orders": {"kind": "count"}, "customers": {"kind": "privacy_id_count"}}
    limits = ["at most 3 groups by city are counted of one CUSTOMER_ID"]
    pa.parquet.write_table(pa.table(metric("orders", [1000.0])), tmp_path / "total.parquet")
    pa.parquet.write_table(pa.table({"city": ["a"], **metric("orders", [500.0])}), tmp_path / "cities.parquet")
    tables = {name: tmp_path / f"{name}.parquet" for name in ("total", "cities")}
    cities = {"name": "cities", "partition_by": ["city"], "metrics": entries, "limits": limits}
    said = "Adding up orders over these rows may not give that of total: only 3 groups by city of each customer count here."
    for total, expected in (
        ({"partition_by": [], "metrics": entries}, True),
        ({"partition_by": [], "metrics": {"orders": {"kind": "sum"}}}, False),
        ({"partition_by": ["shop"], "metrics": entries}, False),
    ):
        html = render(manifest(stages=[{"name": "total", **total}, cities]), tables)
        assert (said in Page(html).words) == expected


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("week", ["2026-01-05", "2026-01-12"], "weeks from 2026-01-05 to 2026-01-18"),
        ("week", ["2026-01-05", "2026-01-13"], "from 2026-01-05 to 2026-01-13"),
        ("day", ["2026-01-05", "2026-01-12"], "from 2026-01-05 to 2026-01-12"),
        ("week", ["2026-W02", "2026-W03"], "from 2026-W02 to 2026-W03"),
        ("week", [None, "2026-W02", "2026-W03"], "from 2026-W02 to 2026-W03"),
        ("month", np.array(["2026-01-01", "2026-02-01"], "datetime64[D]"), "months of 2026-01 to 2026-02"),
    ],
)
def test_dates_that_begin_weeks_or_months_stand_for_them(
    tmp_path: pathlib.Path, name: str, values: Any, words: str
) -> None:
    read = Page(page(tmp_path, {name: values, **metric("orders", [500.0, 600.0, 700.0][: len(values)])}, stage()))
    assert f"orders by {name}, {words}" in read.words


def test_a_panel_over_days_names_some_between_its_ends_and_the_year_once(tmp_path: pathlib.Path) -> None:
    texts = Page(page(tmp_path, groceries(12, 3))).inside("svg", "text")
    below = [text for text in texts if re.fullmatch(r"(\d{4}-)?\d{2}-\d{2}", text)]
    assert below[:3] == ["2026-01-05", "02-16", "03-09"]


def test_an_axis_names_the_unit_of_measure_of_its_numbers(tmp_path: pathlib.Path) -> None:
    of_euros = {"presentation": {"stages": {"weekly": {"metrics": {"orders": {"measure": "EUR"}}}}}}
    sold = {"city": ["Ulm", "Bonn"], **metric("orders", [12000.0, 8000.0])}
    for table, places in ((groceries(12, 1), {"EUR"}), (sold, {"10,000 EUR"})):
        keys = [name for name in table if name in ("city", "product", "week")]
        described = manifest(stages=[{**manifest()["stages"][0], "partition_by": keys}])
        assert places <= set(Page(page(tmp_path, table, described | of_euros)).inside("svg", "text"))
        assert not any("EUR" in text for text in Page(page(tmp_path, table, described)).inside("svg", "text"))


def test_the_group_of_all_other_keys_has_no_panel_over_time(tmp_path: pathlib.Path) -> None:
    weeks = ["2026-W01", "2026-W02", "2026-W03"]
    table = {
        "country": ["DE"] * 3 + ["FR"] * 3 + [None],
        "week": weeks * 2 + [None],
        "country_week_is_other": [False] * 6 + [True],
        **metric("orders", [500.0] * 6 + [9000.0]),
    }
    described = {"name": "weekly", "partition_by": ["country", "week"], "metrics": {"orders": {"kind": "count"}}}
    read = Page(page(tmp_path, table, manifest(stages=[described])))
    assert sorted(
        name for plot in read.plots for name in ("DE", "FR", "all others") if f"of {name} over time" in plot
    ) == [
        "DE",
        "FR",
    ]
    assert "all others" in read.words, "the table has it"


def test_a_caption_speaks_of_a_missing_time_only_where_one_is(tmp_path: pathlib.Path) -> None:
    for last, missing in (("2026-W03", False), ("2026-W05", True)):
        weeks = ["2026-W01", "2026-W02", last]
        other = ["2026-W03"] if missing else []
        table = {
            "city": ["a"] * 3 + ["b"] * len(other),
            "week": weeks + other,
            **metric("orders", [500.0] * (3 + len(other))),
        }
        assert ("a line ends where the next week is missing" in Page(page(tmp_path, table, stage())).words) == missing


def test_no_line_ends_within_a_date(tmp_path: pathlib.Path) -> None:
    table = {"week": ["2026-01-05", "2026-01-12"], **metric("orders", [900.0, 500.0])}
    html = page(tmp_path, table, stage())
    assert Page(html).words.count("2026-01-05") >= 3
    assert len(re.findall(r'class="t">2026-01-\d\d<', html)) >= 5
    assert not [text for text in re.findall(r"<bdi>([^<]*)", html) if "2026-01-" in text]


def test_while_estimates_are_shown_no_sentence_speaks_of_error_bars_of_theirs(tmp_path: pathlib.Path) -> None:
    weeks = {"week": ["2026-W01", "2026-W02", "2026-W03"], **metric("orders", [880.0, 1760.0, 440.0], 10.0)}
    html = page(tmp_path, ranged(weeks), ranged_manifest()).partition('id="read"')[0]
    shown = re.sub(r'<span class="counted">.*?</span>(?=<span class="estimate">)', "", html, flags=re.DOTALL)
    words = Page(shown[shown.index('id="stage-1"') :]).words
    assert "Points are estimates of the true numbers" in words
    assert "Columns with a range show estimates of the true numbers; elsewhere ± covers 95% of the noise" in words
    assert "error bars" not in words


def test_what_was_not_measured_is_said_once(tmp_path: pathlib.Path) -> None:
    words = Page(page(tmp_path, by_city(5), stage())).words
    assert words.count("was not measured") == 1


def test_a_typical_page_is_small(tmp_path: pathlib.Path) -> None:
    assert len(page(tmp_path, groceries(52, 12), stage(partition_by=["product", "week"])).encode()) < 300_000


def test_a_page_of_three_stages_of_312_rows_is_not_large(tmp_path: pathlib.Path) -> None:
    pa.parquet.write_table(pa.table(groceries(52, 6)), tmp_path / "weekly.parquet")
    (described,) = manifest()["stages"]
    names = ("first", "second", "third")
    content = manifest(stages=[{**described, "name": name} for name in names])
    html = render(content, dict.fromkeys(names, tmp_path / "weekly.parquet"))
    assert html.count(' data-notes="') == 3 * (3 * 6 + 2)  # each point of each chart says its number
    assert len(html.encode()) < 530_000


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
