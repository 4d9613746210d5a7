"""Metrics with a list of numbers in each row: read as they stand, shown in the table, plotted; nothing breaks them."""

import pathlib
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.report.charts import pairs, spark
from dp_pipelines.report.list_charts import _merged
from dp_pipelines.report.released_table import read_published
from dp_pipelines.report.report import render
from tests.helpers.work import calls_of
from tests.report.page import Page, listed, metric, page, spread_groceries, spread_manifest
from tests.report.test_report import SHAPES, UGLY

NAN = float("nan")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(tmp_path_factory.mktemp("page"), spread_groceries(), spread_manifest())


def read(folder: pathlib.Path, values: pa.Array, stddevs: pa.Array) -> Any:
    """What is read of a table with these two columns."""
    path = folder / "t.parquet"
    pa.parquet.write_table(pa.table({"v": values, "v_stddev": stddevs}), path, row_group_size=2)
    (found,) = read_published(path).lists
    return found


ROWS = [[1.0, 2.0], None, [3.0, None], [4.0, 5.0], [6.0], []]
SHOWN = [[1.0, 2.0], [NAN, NAN], [3.0, NAN], [4.0, 5.0], [NAN, NAN], [NAN, NAN]]


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list], ids=["list", "large list"])
@pytest.mark.parametrize("of", [pa.float64(), pa.int32(), pa.float32()], ids=str)
def test_lists_are_read_as_rows_and_what_is_missing_has_no_number(
    tmp_path: pathlib.Path, kind: Any, of: pa.DataType
) -> None:
    whole = [None if row is None else [None if x is None else int(x) for x in row] for row in ROWS]
    found = read(tmp_path, pa.array(whole, kind(of)), pa.array(ROWS, pa.list_(pa.float64())))
    np.testing.assert_array_equal(found.values, SHOWN)
    np.testing.assert_array_equal(found.stddevs, SHOWN)


def test_lists_of_a_fixed_size_are_read_with_a_number_as_their_deviation(tmp_path: pathlib.Path) -> None:
    rows = [[1.0, 2.0], [NAN, NAN], [3.0, None]]
    found = read(tmp_path, pa.array(rows, pa.list_(pa.float64(), 2)), pa.array([1.0, 2.0, None]))
    np.testing.assert_array_equal(found.values, [[1.0, 2.0], [NAN, NAN], [3.0, NAN]])
    np.testing.assert_array_equal(found.stddevs, [[1.0, 1.0], [2.0, 2.0], [NAN, NAN]])


def test_what_is_no_list_of_numbers_is_no_such_metric(tmp_path: pathlib.Path) -> None:
    for values in (pa.array([["a"]]), pa.array([[[1.0]]]), pa.array([[]], pa.list_(pa.float64()))):
        pa.parquet.write_table(pa.table({"v": values, "v_stddev": [1.0]}), tmp_path / "t.parquet")
        assert read_published(tmp_path / "t.parquet").lists == ()
        assert not Page(render({}, {"t": tmp_path / "t.parquet"})).unbalanced


def test_each_quantile_has_a_column_that_is_named_after_it(whole: str) -> None:
    found = Page(whole)
    assert found.inside("thead", "tr", "th", "span")[:5] == ["10%", "25%", "50%", "75%", "90%"]
    rows = re.findall(r'<tr><th scope="row"><bdi>product 0.*?</tr>', whole)
    (first,) = (row for row in rows if "2026-01-05" in row)
    cells = [" ".join(Page(cell).words.split()) for cell in re.findall(r'<td class="n">(.*?)</td>', first)]
    assert cells[3:8] == ["3.20 ± 0.78", "8.70 ± 0.78", "12.00 ± 0.78", "16.40 ± 0.78", "24.10 ± 0.78"]


def test_a_histogram_is_small_bars_with_its_numbers_behind_them(whole: str) -> None:
    words = Page(whole).words
    assert "0 to 5 331 ± 118" in words
    assert "cash 400 ± 118" in words
    assert whole.count('<svg class="spark"') == 2 * 108
    assert 'aria-label="sizes: 8 numbers, the largest at 10 to 20"' in whole


def test_a_null_or_nan_inside_of_a_list_is_a_dash(tmp_path: pathlib.Path) -> None:
    values = pa.array([[1.0, NAN, 3.0], None, [None, 2.0, 3.0]], pa.list_(pa.float64()))
    stddevs = pa.array([[0.1] * 3] * 3, pa.list_(pa.float64()))
    for kind, dashes in (({"quantiles": [0.1, 0.5, 0.9]}, 5), ({"edges": [0, 1, 2, 3]}, 3)):
        content = {"stages": [{"name": "weekly", "partition_by": ["k"], "metrics": {"v": kind}}]}
        html = page(tmp_path, {"k": ["a", "b", "c"], "v": values, "v_stddev": stddevs}, content)
        assert Page(html).inside("td", "span").count("–") + Page(html).inside("li", "span").count("–") == dashes
        assert "nan" not in html.lower().replace("isnan", "")


def test_what_is_plotted_is_said(whole: str) -> None:
    plots = Page(whole).plots
    bands = [title for title in plots if title.startswith("Quantiles of basket of")]
    assert len(bands) == 9
    assert bands[0] == (
        "Quantiles of basket of product 8 over time: 12 points; at 2026-03-23: 10% 1.42 ± 0.78, 50% 10.21 ± 0.78, "
        "90% 22.29 ± 0.78; 50%: falls"
    )
    assert not [title for title in plots if title.startswith("Quantiles of basket: ")]  # the same numbers again
    assert len([title for title in plots if title.startswith("Histogram of sizes of ")]) == 6
    assert len([title for title in plots if title.startswith("Bars of payment of ")]) == 6
    words = Page(whole).words
    assert "Bands reach from 10% to 90%, within it 25% to 75%." in words
    assert "The 6 largest groups by orders , each on its own scale." in words
    assert "middle : the median of a column" in words


def test_bands_are_where_the_quantiles_are(tmp_path: pathlib.Path) -> None:
    columns: dict[str, Any] = {"week": ["2026-W01", "2026-W02", "2026-W03"]}
    columns["v"], columns["v_stddev"] = listed([[10.0, 50.0, 100.0]] * 3, 1.0)
    content = {"stages": [{"name": "weekly", "metrics": {"v": {"quantiles": [0, 0.5, 1]}}}]}
    html = page(tmp_path, columns, content)
    over_time = html[html.index("Over time.") : html.index("The table")]
    (band,) = re.findall(r'd="([^"]*)" style="fill: var\(--heat-1\)', " ".join(over_time.split()))
    heights = [float(y) for y in re.findall(r"[ML][\d.]+ ([\d.]+)", band)]
    low, high = max(heights), min(heights)
    (dots,) = re.findall(r'd="([^"]*h0)" style="stroke: var\(--mark\); stroke-width: 4.2"', over_time)
    (point,) = {float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)h0", dots)}
    assert point == pytest.approx(low - (low - high) * 40 / 90, abs=0.1)


@pytest.mark.parametrize("quantiles", [[0.9], [0.1, 0.9], [0.1, 0.5, 0.9]], ids=str)
def test_every_quantile_that_is_drawn_has_an_error_bar(tmp_path: pathlib.Path, quantiles: list[float]) -> None:
    columns: dict[str, Any] = {"week": ["2026-W01", "2026-W02"]}
    columns["v"], columns["v_stddev"] = listed([[100.0 * q for q in quantiles]] * 2, 2.0)
    content = {"stages": [{"name": "weekly", "metrics": {"v": {"quantiles": quantiles}}}]}
    html = page(tmp_path, columns, content)
    over_time = html[html.index("Over time.") :]
    html = page(
        tmp_path,
        columns | {"week": ["a", "b"]},
        {"stages": [{"name": "weekly", "metrics": {"v": {"quantiles": quantiles}}}]},
    )
    for part, width in ((over_time, "1"), (html[html.index("Side by side.") :], "1.4")):
        bars = re.findall(rf'<path d="([^"]*)" style="fill: none; stroke: var\(--mark\); stroke-width: {width};', part)
        assert " ".join(bars).count("M") == 2 * len(quantiles)
        assert "Thin lines are error bars." in part


def test_a_table_of_nothing_but_lists_gives_plots(tmp_path: pathlib.Path) -> None:
    columns: dict[str, Any] = {"k": ["a", "b", "c"]}
    columns["v"], columns["v_stddev"] = listed([[1, 2, 3], [7, 8, 9], [4, 5, 6]], 0.1)
    content = {"stages": [{"name": "weekly", "metrics": {"v": {"edges": [0, 1, 2, 3]}}}]}
    assert "The 3 largest groups by the total of v" in Page(page(tmp_path, columns, content)).words
    assert "The numbers in each list. The 3 first groups" in Page(page(tmp_path, columns, {})).words
    content = {"stages": [{"name": "weekly", "metrics": {"v": {"kind": "quantiles", "quantiles": [0.1, 0.5, 0.9]}}}]}
    assert "The 3 first groups" in Page(page(tmp_path, columns, content)).words


def test_one_histogram_of_all_has_one_panel(tmp_path: pathlib.Path) -> None:
    columns: dict[str, Any] = {}
    columns["v"], columns["v_stddev"] = listed([[5.0, 6.0]], 0.1)
    html = page(tmp_path, columns, {"stages": [{"name": "weekly", "partition_by": [], "metrics": {"v": {}}}]})
    assert 'class="single"' in html
    assert html.count("<svg role") == 1


def test_neighbouring_bins_are_added_up_where_there_are_too_many(tmp_path: pathlib.Path) -> None:
    columns: dict[str, Any] = {"k": ["a", "b"]}
    columns["v"], columns["v_stddev"] = listed(np.ones((2, 4096)), 0.1)
    content = {"stages": [{"name": "weekly", "metrics": {"v": {"kind": "histogram", "edges": list(range(4097))}}}]}
    html = page(tmp_path, columns, content)
    assert "69 neighbouring bins are drawn as one." in Page(html).words
    assert "4,072 more" in Page(html).words
    assert len(html) < 200_000
    assert _merged(np.arange(5.0), 2).tolist() == [1.0, 5.0, 4.0]


def test_of_many_categories_the_largest_are_drawn_and_of_many_quantiles_nine_have_a_column(
    tmp_path: pathlib.Path,
) -> None:
    columns: dict[str, Any] = {"k": ["a", "b"]}
    columns["v"], columns["v_stddev"] = listed(np.tile(np.arange(100.0), (2, 1)), 0.1)
    columns["w"], columns["w_stddev"] = listed(np.tile(np.arange(100.0), (2, 1)), 0.1)
    entries = {
        "v": {"kind": "histogram", "categories": [f"kind {i}" for i in range(100)]},
        "w": {"kind": "quantiles", "quantiles": [i / 100 for i in range(100)]},
    }
    found = Page(page(tmp_path, columns, {"stages": [{"name": "weekly", "metrics": entries}]}))
    assert "The 10 largest of each." in found.words
    assert {"kind 99", "kind 90"} <= set(found.inside("svg", "text"))
    assert "kind 89" not in found.inside("svg", "text")
    heads = [text for text in found.inside("th", "span") if text.endswith("%")]
    assert (len(heads), heads[0], heads[-1]) == (9, "0%", "99%")


def of_a_category(folder: pathlib.Path, text: str) -> Page:
    payment = {"kind": "histogram", "categories": [text, "card", None]}
    return Page(page(folder, spread_groceries(3, 2), spread_manifest(payment=payment)))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Page:
    return of_a_category(tmp_path_factory.mktemp("plain"), "plain")


@pytest.mark.parametrize("ugly", UGLY, ids=range(len(UGLY)))
def test_no_category_changes_an_element_of_the_page(tmp_path: pathlib.Path, ugly: str, plain: Page) -> None:
    assert of_a_category(tmp_path, ugly).shape == plain.shape


STRANGE: list[Any] = [
    3, {}, {"kind": "histogram"}, {"kind": "quantiles"}, {"edges": [1]}, {"categories": "abc"}, {"quantiles": [1, 2]},
    {"kind": "histogram", "edges": [0, "x", NAN, 1, 2, 3]}, {"quantiles": [NAN] * 5}, {"categories": [[], {}, 1, 2, 3]},
    {"kind": "quantiles", "quantiles": [10**400] * 5}, {"kind": "mean"}, {"edges": [True] * 6},
]  # fmt: skip


@pytest.mark.parametrize("entry", STRANGE, ids=range(len(STRANGE)))
def test_whatever_the_manifest_says_of_a_list_it_gives_a_page(tmp_path: pathlib.Path, entry: Any) -> None:
    html = page(tmp_path, spread_groceries(3, 2), spread_manifest(basket=entry, sizes=entry, payment=entry))
    assert not Page(html).unbalanced


NUMBER = st.one_of(st.none(), st.floats(), st.floats(-1e4, 1e4), st.sampled_from([1e308, -1e308, 1e-320, 0.0]))
LISTS = st.one_of(st.none(), st.lists(NUMBER, max_size=4))


@settings(max_examples=20)
@given(st.lists(st.tuples(st.dates(), LISTS, LISTS), max_size=8), st.sampled_from(["quantiles", "histogram"]))
def test_no_list_breaks_the_page(tmp_path_factory: pytest.TempPathFactory, rows: list[Any], kind: str) -> None:
    days, values, stddevs = (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 3
    lists = pa.list_(pa.float64())
    columns = {"day": pa.array(days, pa.date32()), "v": pa.array(values, lists), "v_stddev": pa.array(stddevs, lists)}
    content = {"stages": [{"name": "weekly", "metrics": {"v": {"kind": kind, "edges": [0, 1, 2]}}}]}
    html = page(tmp_path_factory.mktemp("any"), columns, content)
    assert not Page(html).unbalanced
    numbers = re.findall(r'(?:cx|cy|x|y|d|width|viewBox)="([^"]*)"', html)
    assert not [text for text in numbers if "nan" in text or "inf" in text]


def test_the_page_fetches_nothing_and_is_the_same_in_another_process(tmp_path: pathlib.Path, whole: str) -> None:
    assert not SHAPES.findall(whole)
    code = (
        "import pathlib, sys; from tests.report.page import page, spread_groceries, spread_manifest\n"
        "sys.stdout.reconfigure(encoding='utf-8', newline='\\n')\n"
        f"sys.stdout.write(page(pathlib.Path({str(tmp_path)!r}), spread_groceries(), spread_manifest()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode() == whole


def test_many_rows_of_lists_take_a_few_calls_each(tmp_path: pathlib.Path) -> None:
    rows = 100_000
    flat = np.random.default_rng(1).normal(100, 30, rows * 5)
    lists = pa.ListArray.from_arrays(np.arange(0, rows * 5 + 1, 5, dtype=np.int32), flat)
    columns: dict[str, Any] = {
        "shop": pa.array([f"shop {i % 500}" for i in range(rows)]),
        "day": pa.array(np.datetime64("2026-01-01") + np.arange(rows) // 500),
        **metric("n", np.arange(rows) % 977, 10.0),
    }
    for name in ("basket", "sizes", "payment"):
        columns[name] = columns[f"{name}_stddev"] = lists
    page(tmp_path, spread_groceries(3, 2), spread_manifest())
    path = tmp_path / "weekly.parquet"
    pa.parquet.write_table(pa.table(columns), path)
    content = spread_manifest(sizes={"kind": "histogram", "edges": [0, 1, 2, 3, 4, 5]})
    assert len(render(content, {"weekly": path})) < 2_000_000
    assert calls_of(lambda: render(content, {"weekly": path})) < 20 * rows


def test_bands_are_chosen_from_outside_inwards() -> None:
    for width in range(1, 101):
        found = pairs(width)
        assert len(found) == min(3, width // 2)
        assert all(low < high and low + high == width - 1 for low, high in found)
        assert [low for low, _ in found] == sorted({low for low, _ in found})


def test_second_moments_are_named_after_their_columns_and_may_be_negative(tmp_path: pathlib.Path) -> None:
    columns: dict[str, Any] = {"k": ["a", "b"]}
    columns["v"], columns["v_stddev"] = listed([[5.0, -60.0, 7.0]] * 2, 0.1)
    entry = {"kind": "second_moments", "columns": ["height", "weight"]}
    html = page(tmp_path, columns, {"stages": [{"name": "weekly", "metrics": {"v": entry}}]})
    assert "sums of products of columns, two by two" in Page(html).words
    assert any("height" in text and "weight" in text for text in Page(html).inside("svg", "text"))
    assert "v16.1h" in html  # a small bar below the line of zero


@given(st.lists(st.floats(), min_size=1, max_size=50))
def test_small_bars_stay_in_their_box(values: list[float]) -> None:
    found = re.findall(r"M[-\d.e]+ ([-\d.e]+)v([-\d.e]+)h", str(spark(np.array(values), "any")))
    ends = [float(end) for zero, move in found for end in (zero, float(zero) + float(move))]
    assert all(-0.1 <= end <= 18.1 for end in ends)
    assert len(found) <= sum(value != 0 for value in values)
