"""The report: one page, complete, that no key and no manifest can break; without a network, the same each time."""

import datetime
import decimal
import math
import os
import pathlib
import re
import subprocess
import sys
import unicodedata
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.report.key_text import key_text, label, shown_key, visible
from dp_pipelines.report.report import render
from tests.helpers.work import calls_of
from tests.report.page import Page, groceries, manifest, metric, page

UGLY = [
    "<script>alert(1)</script>",
    "'\"><svg onload=alert(1)>",
    "</style></title>",
    "{{ 7 * 7 }}",
    "&amp;",
    "x" * 10_000,
    "\u202eright to left",
    "عربي",
    "a\x00b\x07\x1b[31m\r\n",
    "👩‍👩‍👧 漢字",
    "$x^$ \\frac",
    "K0K",
    "  spaces  ",
]
SHAPES = re.compile(r"https?://|//[a-z]|url\(|@import|<link|<img|<iframe|<object|srcset", re.IGNORECASE)
"""What could make a browser fetch something."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(tmp_path_factory.mktemp("page"), groceries())


def test_elements_are_balanced_and_names_of_elements_are_unique(whole: str) -> None:
    read = Page(whole)
    assert not read.unbalanced
    assert not read.open
    assert len(read.ids) == len(set(read.ids)) > 4


def test_an_unbalanced_page_is_found() -> None:
    assert Page("<p><b></p>").unbalanced


def test_the_page_says_what_it_is_and_for_whom_it_holds(whole: str) -> None:
    words = Page(whole).words
    for part in (
        "grocery", "2026-W12", "Each customer is protected", "one value of CUSTOMER_ID", "random noise was added to every number",
        "How private is this?", "timing and side channels", "one person under two privacy units",
        "a group with about 204 customers has a 50% chance of being shown", "one with fewer than 20 none", "all of their rows",
        "100537306aea5d34", "ab" * 32, "0.1.0",
    ):  # fmt: skip
        assert part in words, part


def test_epsilon_and_delta_are_said_in_plain_words(whole: str) -> None:
    words = Page(whole).words
    assert "by at most a factor of 1.11" in words  # e^0.1 is 1.105, rounded up
    assert "1 in 1,000,000" in words
    # e^0.1 / (1 + e^0.1) is 0.525; of e^0.99995 the same is 0.731.
    assert (
        "is right at most 53 times in 100 after this run, and at most 74 times after all 52 runs of this plan." in words
    )
    assert f"is at most {math.ceil(100 * math.exp(0.99995)) / 100}" in words


@pytest.mark.parametrize(
    ("once", "together", "words"),
    [
        (
            0.1,
            40.0,
            "right at most 53 times in 100 after this run, and may be almost certain after all 52 runs of this plan.",
        ),
        (40.0, 40.0, "may be almost certain after this run: the guarantee sets no limit below 100 times in 100."),
    ],
)
def test_nobody_reads_that_a_guess_is_limited_where_it_is_not(
    tmp_path: pathlib.Path, once: float, together: float, words: str
) -> None:
    content = manifest(
        accounted={"epsilon": together, "delta": 1e-6}, accounted_one_run={"epsilon": once, "delta": 1e-6}
    )
    assert words in Page(page(tmp_path, groceries(3, 2), content)).words


def test_little_that_is_left_of_a_budget_is_nothing(tmp_path: pathlib.Path) -> None:
    spent = {"cap": {"epsilon": 4.0}, "spent": {"epsilon": 3.9995}, "left": {"epsilon": 0.0005}, "rule": "filter"}
    words = Page(page(tmp_path, groceries(3, 2), manifest(ledger={**manifest()["ledger"], **spent}))).words
    assert "4 of 4 spent (100%), nothing left" in words


def test_the_account_so_far_has_a_bar_that_is_as_long_as_its_words_say(whole: str) -> None:
    bars = [
        a["style"] for tag, a in Page(whole).elements if tag == "div" and (a.get("style") or "").startswith("width")
    ]
    assert bars == ["width: 25.00%", "width: 10.00%"]
    assert "1 of 4 set aside for all runs (25%), 3 left" in Page(whole).words


def test_a_release_without_a_ledger_says_so(tmp_path: pathlib.Path) -> None:
    content = manifest(ledger={"head": None, "note": "not accounted across runs"})
    assert "Not accounted across runs." in Page(page(tmp_path, groceries(), content)).words


def test_every_plot_and_every_table_has_words_for_those_who_do_not_see_it(whole: str) -> None:
    read = Page(whole)
    plots = [attributes for tag, attributes in read.elements if tag == "svg" and "viewbox" not in attributes]
    assert (
        len(plots) == len(read.plots) == 3 * 9 + 2
    )  # a panel for each product; orders and revenue add up over all of them
    assert all(a["role"] == "img" and len(a["aria-label"] or "") > 20 for a in plots)
    tables = [tag for tag, _ in read.elements if tag in ("table", "caption")]
    assert tables == ["table", "caption"] * 3
    assert ("html", {"lang": "en"}) in read.elements
    assert all("scope" in attributes for tag, attributes in read.elements if tag == "th")


def test_the_text_of_plots_is_text(whole: str) -> None:
    texts = Page(whole).inside("svg", "text")
    assert {"2026-01-05", "500", "20,000"} <= set(texts)
    assert not any(re.fullmatch(r"K\d+K", text) for text in texts)


def test_the_table_of_a_time_series_has_the_largest_group_first_and_each_in_the_order_of_time(whole: str) -> None:
    read = Page(whole)
    orders = groceries()["orders"].to_numpy().reshape(9, 12)
    largest = int(np.argmax(np.clip(orders - 1.96 * 80, 0, None).sum(axis=1)))
    assert read.inside("tbody", "tr", "th", "bdi")[:12] == [f"product {largest}"] * 12
    weeks = read.inside("tbody", "tr", "td", "bdi")[:108]
    assert weeks == sorted(set(weeks)) * 9
    assert read.inside("td", "span")[:2] == [f"{orders[largest, 0]:,.0f}", "± 157"]
    assert "All 108 rows, by product (the largest first), week" in read.words
    assert read.inside("td", "span").count("–") == 16  # means that have no number


def test_only_the_first_rows_are_shown_and_the_rest_is_counted(tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, {"k": [f"{i:04d}" for i in range(1234)], **metric("n", range(1234))}, {})
    read = Page(html)
    assert [t for t in read.inside("th", "bdi") if t.isdigit()] == [f"{i:04d}" for i in range(200)]
    assert "1,034 more" in read.words
    assert "weekly.parquet" in read.words
    assert str(tmp_path) not in html


def test_each_metric_has_its_verdict_and_noise_is_a_dash(tmp_path: pathlib.Path) -> None:
    content = manifest()
    content["stages"][0]["metrics"]["mean_price"]["range"] = [0, 20]
    columns = {"product": ["a", "b"], "week": ["x", "y"], **metric("orders", [90.0, 5.0], 10.0),
               **metric("mean_price", [19.5, 7.0], [10.0, 1.0])}  # fmt: skip
    words = Page(page(tmp_path, columns, content)).words
    assert "orders : the number of rows 1 of 2 differs from zero; 0.1 would by chance." in words
    assert "1 of 2 error bar is shorter than a quarter of the range 0 … 20" in words
    assert "by chance' assumes that every true number is 0" in words.replace("\u2019", "'")
    assert "– (noise)" in words
    assert "19.5" not in Page(page(tmp_path, columns, content)).inside("td", "span")


def test_a_run_of_several_says_what_was_spent_so_far(tmp_path: pathlib.Path) -> None:
    ledger = {**manifest()["ledger"], "so_far": {"epsilon": 0.43211}}
    words = Page(page(tmp_path, groceries(), manifest(ledger=ledger))).words
    assert "This is run 3 of 52; the runs so far used epsilon 0.4322 of 1." in words
    assert "the runs so far" not in Page(page(tmp_path, groceries())).words  # a manifest of version 0.1.0 does not say


def test_an_empty_table_says_that_nothing_was_published_and_not_why(tmp_path: pathlib.Path) -> None:
    empty = {name: column[:0] for name, column in groceries().items()}
    words = Page(page(tmp_path, empty)).words
    assert "No group was published: a group needs about 204 customers. Use larger groups" in words
    assert "does not mean that there was nothing" in words
    alone = Page(page(tmp_path, empty, manifest(params={}))).words
    assert "Look also at a where or a window of the job: it decides which rows are read, and may leave few." in alone
    dated = Page(page(tmp_path, empty, manifest(params={"week": "2026-W01"}))).words
    assert "a where or a window of the job and week = 2026-W01: they decide which rows are read" in dated


def test_a_stage_without_a_table_is_named() -> None:
    words = Page(render(manifest(stages=[{"name": "returns", "kind": "train"}]), {})).words
    assert "returns" in words
    assert "published no table" in words


def test_the_same_release_gives_the_same_bytes_in_another_process(tmp_path: pathlib.Path, whole: str) -> None:
    code = (
        "import pathlib, sys; from tests.report.page import groceries, page\n"
        "sys.stdout.reconfigure(encoding='utf-8', newline='\\n')\n"
        f"sys.stdout.write(page(pathlib.Path({str(tmp_path)!r}), groceries()))"
    )
    settings = {"PYTHONHASHSEED": "7", "TZ": "Asia/Taipei"}
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | settings, capture_output=True, check=True)
    assert done.stdout.decode() == whole
    assert done.stderr == b""


def test_another_release_gives_another_page(tmp_path: pathlib.Path, whole: str) -> None:
    assert page(tmp_path, groceries(products=8)) != whole


def test_nothing_in_the_page_can_be_fetched(whole: str) -> None:
    read = Page(whole)
    assert not SHAPES.findall(whole)
    links = [a["href"] or "" for tag, a in read.elements if "href" in a]
    assert len(links) > 5
    assert {link.removeprefix("#") for link in links} <= set(read.ids)  # places on the page itself
    assert not [a for _, a in read.elements if {"src", "xlink:href", "action", "data", "poster"} & set(a)]
    (policy,) = [a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


@pytest.mark.parametrize(
    "bad", ["<img src=x>", "http://x.example", "a{background:url(x)}", '<b xlink:href="//cdn.x"/>']
)
def test_what_could_be_fetched_is_found(bad: str) -> None:
    assert SHAPES.search(bad)


@pytest.mark.parametrize("ugly", UGLY, ids=range(len(UGLY)))
def test_a_key_changes_no_element_of_the_page(tmp_path: pathlib.Path, ugly: str) -> None:
    def html(text: str) -> str:
        weeks = [f"2026-W{i:02d}" for i in range(1, 7)]
        return page(tmp_path, {text: [text, "b"] * 6, "week": sorted(weeks * 2), **metric("n", range(100, 112))}, {})

    plain, found = Page(html("plain key")), Page(html(ugly))
    assert found.shape == plain.shape
    assert shown_key(ugly) in found.inside("th", "bdi")
    assert not [c for c in found.words if unicodedata.category(c) in ("Cc", "Cs")]


def test_a_key_that_gets_in_unescaped_is_found(tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, {"k": ["<b onclick=x>"], **metric("n", [5.0])}, {})
    assert Page(html.replace("&lt;", "<").replace("&gt;", ">")).shape != Page(html).shape


@pytest.mark.parametrize("ugly", UGLY, ids=range(len(UGLY)))
def test_a_manifest_changes_no_element_of_the_page(ugly: str) -> None:
    def html(text: str) -> str:
        return render(
            manifest(
                dataset=text, run_id=text, params={text: text}, plan=text, privacy_unit=text, guarantee=text,
                not_covered=[text], versions={text: text},
                ledger={"head": {"seq": text, "hash": text}, "account": text, "rule": text, "window": text, "note": text},
                mechanisms=[{"stage": text, "name": text, "kind": text, "scale": text}],
                stages=[{"name": text}],
            ),
            {},
        )  # fmt: skip

    assert Page(html(ugly)).shape == Page(html("plain")).shape


def test_null_and_nothing_are_told_from_words(tmp_path: pathlib.Path) -> None:
    read = Page(page(tmp_path, {"k": ["null", None, ""], **metric("n", [5.0, 6.0, 7.0])}, {}))
    assert read.inside("th", "i") == ["null", "empty text"]
    assert "null" in read.inside("th", "bdi")


@given(st.text())
def test_a_visible_text_hides_nothing(text: str) -> None:
    seen = visible(text)
    assert all(unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in seen)
    assert not set(seen) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\ufeff")
    assert label(text)


D = decimal.Decimal
# What each is shown as; None where it is null, or where only a text is asked for (years that Python does not have).
KEYS: list[tuple[pa.DataType, list[Any], list[str | None]]] = [
    (pa.bool_(), [True, None], ["true", None]),
    (pa.int64(), [2**63 - 1, -(2**63)], ["9223372036854775807", "-9223372036854775808"]),
    (pa.uint64(), [2**64 - 1, None], ["18446744073709551615", None]),
    (pa.binary(), [b"\xff\x00", b""], ["0xff00", "0x"]),
    (pa.binary(2), [b"ab", None], ["0x6162", None]),
    (pa.decimal128(38, 5), [D("1.5"), None], ["1.50000", None]),
    (pa.decimal256(70, 2), [D("-7"), D("7")], ["-7.00", "7.00"]),
    (pa.date32(), [datetime.date(2026, 1, 5), None], ["2026-01-05", None]),
    (pa.date32(), [10**9, -(10**9)], [None, None]),
    (pa.date64(), [datetime.date(2026, 1, 5), datetime.date(2026, 1, 6)], ["2026-01-05", "2026-01-06"]),
    (pa.timestamp("ns"), [1, 10**9], ["1970-01-01 00:00:00.000000001", "1970-01-01 00:00:01"]),
    (pa.timestamp("us", "+08:00"), [0, 86_400_000_000], ["1970-01-01 08:00:00+08:00", "1970-01-02 08:00:00+08:00"]),
    (pa.timestamp("ms", "No/Where"), [0, None], ["1970-01-01 00:00:00Z", None]),
    (pa.timestamp("s"), [2**50, None], [None, None]),
    (pa.timestamp("us"), [-(2**63), -1], ["-290308-12-21 19:59:05.224192", "1969-12-31 23:59:59.999999"]),
    (pa.time64("ns"), [1, None], ["00:00:00.000000001", None]),
    (pa.duration("s"), [1, 2], ["0:00:01", "0:00:02"]),
    (pa.null(), [None, None], [None, None]),
    (pa.list_(pa.int8()), [[1], [2]], ["[1]", "[2]"]),
]


@pytest.mark.parametrize(("kind", "values", "texts"), KEYS, ids=[str(kind) for kind, _, _ in KEYS])
def test_keys_of_every_type_are_shown_and_plotted(
    tmp_path: pathlib.Path, kind: pa.DataType, values: list[Any], texts: list[str | None]
) -> None:
    column = pa.array(values, kind)
    found = [key_text(scalar) for scalar in column]
    assert all(text in (None, seen) for text, seen in zip(texts, found, strict=True))
    for more in ({}, {"other": ["a", "b"]}):
        read = Page(page(tmp_path, {"key": column, **more, **metric("n", [500.0, 600.0])}, {}))
        shown = read.inside("th", "bdi") + read.inside("th", "i")
        assert all((text or ("null" if text is None else "empty text")) in shown for text in found)
        assert not read.unbalanced


CALENDARS = [
    (["2026-W01", "2026-W02", None], True),
    (["2026W01", "2026W02"], True),
    (["2026-01-01", "2026-02-01"], True),
    (["2026-01", "2026-02"], True),
    (["2025-W53", "2026-W01"], False),  # 2025 has 52 weeks
    (["2026-13-01", "2026-01-01"], False),
    (["2026-W01", "2026-W01"], False),  # one point is no line
    (["0000-01-01", "0000-01-02"], False),
    (["week 1", "week 2"], False),
]


@pytest.mark.parametrize(("texts", "plotted"), CALENDARS, ids=[str(texts) for texts, _ in CALENDARS])
def test_a_text_is_a_time_if_all_of_it_is(tmp_path: pathlib.Path, texts: list[str | None], plotted: bool) -> None:
    plots = Page(page(tmp_path, {"k": texts, **metric("n", [5.0] * len(texts))}, {})).plots
    assert any("over time" in plot for plot in plots) == plotted


NUMBERS = st.one_of(st.none(), st.floats(), st.floats(-1e4, 1e4), st.sampled_from([1e308, -1e308, 1e-320, 0.0]))
ROWS = st.lists(st.tuples(st.text(max_size=5), st.dates(), NUMBERS, NUMBERS, NUMBERS), min_size=0, max_size=12)


@settings(max_examples=20)
@given(ROWS)
def test_no_released_number_breaks_the_page(tmp_path_factory: pytest.TempPathFactory, rows: list[Any]) -> None:
    names, days, values, stddevs, others = (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 5
    columns = {"name": pa.array(names, pa.string()), "day": pa.array(days, pa.date32())}
    columns |= metric("n", values, stddevs) | metric("m", others)
    html = page(tmp_path_factory.mktemp("any"), columns, {})
    assert not Page(html).unbalanced
    for text in Page(html).inside("svg", "text"):
        assert "nan" not in text or "nan" in "".join(names)
    numbers = re.findall(r'(?:cx|cy|x|y|d)="([^"]*)"', html)
    assert not [text for text in numbers if "nan" in text or "inf" in text]


@pytest.mark.parametrize(
    "content",
    [
        {},
        dict.fromkeys(manifest()),
        dict.fromkeys(manifest(), 3),
        {name: ["x"] for name in manifest()},
        {
            "budget": {"epsilon": math.inf, "delta": math.nan, "runs": "x"},
            "accounted_one_run": {"epsilon": 700, "delta": 2},
        },
        {"ledger": {"head": {"seq": 1}, "cap": {"epsilon": 0, "delta": -1}, "spent": {"epsilon": 5, "delta": 10**400}}},
        {"mechanisms": [{}, {"scale": "1/0", "l2_squared": 10**400}, {"scale": 1, "l1": 0, "linf": 2, "epsilon": "x"}]},
        {"stages": [{"name": "weekly", "metrics": {"orders": 3}, "selection": {"half_keep_users": math.nan}}, {}]},
        {"stages": [{"name": "weekly", "partition_by": ["not", "there"], "selection": {"strategy": "public"}}]},
    ],
    ids=range(9),
)
def test_a_manifest_with_anything_missing_or_strange_gives_a_page(
    tmp_path: pathlib.Path, content: dict[str, Any]
) -> None:
    read = Page(page(tmp_path, groceries(3, 2), content))
    assert not read.unbalanced
    assert "How private is this?" in read.words


@pytest.mark.parametrize(
    "columns",
    [
        metric("n", [5.0]),
        {"k": ["a", "b"]},
        {"k": ["a", "b"], "v": pa.array([[1], [2]]), "v_stddev": [1.0, 1.0]},
        {"a": ["x"] * 3, "b": [1, 2, 3], "c": [True] * 3, **metric("n", [5.0, 6.0, 7.0])},
        {f"k{i}": ["x", "y"] for i in range(8)}
        | {k: v for i in range(9) for k, v in metric(f"n{i}", [1.0, 2.0]).items()},
    ],
    ids=["no key", "no metric", "vectors", "three keys", "many"],
)
def test_tables_of_every_form_give_a_page(tmp_path: pathlib.Path, columns: dict[str, Any]) -> None:
    assert not Page(page(tmp_path, columns, {})).unbalanced


def test_a_report_is_drawn_without_a_library_for_plots(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys, pathlib; import dp_pipelines.report.report\n"
        "assert 'jinja2' not in sys.modules\n"
        "from tests.report.page import groceries, page\n"
        f"page(pathlib.Path({str(tmp_path)!r}), groceries(3, 2))\n"
        "assert 'matplotlib' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_results_come_before_what_protects_them_and_one_sentence_leads_there(whole: str) -> None:
    words = Page(whole).words
    parts = (
        "orders, revenue and mean_price by product and week, weeks from 2026-01-05 to 2026-03-29",
        "Sum of the 108 groups shown",
        "random noise was added",
        "orders : the number",
        "The table",
        "How to read the numbers 1,200",
        "How private is this? Who",
        "The budget",
        "Technical details The 2 mechanisms",
    )
    places = [words.index(part) for part in parts]
    assert places == sorted(places)
    assert 'href="#private"' in whole[: whole.index('<div id="numbers">')]


def test_no_heading_is_empty_and_none_stands_above_nothing(tmp_path: pathlib.Path, whole: str) -> None:
    one = page(tmp_path, {"k": ["a"], **metric("n", [5.0]), **metric("m", [None])}, {})
    for html in (whole, one, render({}, {})):
        main = html[: html.index("</main>")]
        for level, heading, after in re.findall(r"<h([23])[^>]*>(.*?)</h\1>(.*?)(?=<h[123]|$)", main, re.DOTALL):
            assert Page(heading).words
            assert Page(after).words or level == "2", heading
    assert ">n</bdi></h3>" not in one  # one number is no plot


MOMENTS: list[tuple[str, pa.DataType, list[str], str, str, str]] = [
    ("days in a zone", pa.timestamp("us", "UTC"), ["2012-12-31", "2013-01-07"], "2013-01-07", "2013-01-07", "00:00"),
    ("days", pa.timestamp("ns"), ["2012-12-31", "2013-01-07"], "2013-01-07", "2013-01-07", "00:00"),
    ("months", pa.date32(), ["2012-12-01", "2013-01-01"], "2013-01-01", "2013-01", "00:00"),
    ("years", pa.timestamp("ms"), ["2012-01-01", "2013-01-01"], "2013-01-01", "2013", "00:00"),
    ("hours", pa.timestamp("s"), ["2013-01-01T00", "2013-01-01T05"], "2013-01-01 05:00:00", "2013-01-01 05:00", "T"),
]


@pytest.mark.parametrize(
    ("kind", "moments", "cell", "mark", "never"), [m[1:] for m in MOMENTS], ids=[m[0] for m in MOMENTS]
)
def test_a_moment_is_told_as_short_as_all_of_them_allow(
    tmp_path: pathlib.Path, kind: pa.DataType, moments: list[str], cell: str, mark: str, never: str
) -> None:
    zone = kind.tz if pa.types.is_timestamp(kind) else None
    plain = pa.timestamp(kind.unit) if zone else kind
    column = pa.array(np.array(moments, "datetime64[us]")).cast(plain).cast(kind)
    html = page(tmp_path, {"time": column, **metric("n", [500.0, 600.0])}, {})
    read = Page(html)
    assert cell in read.inside("th", "bdi")
    assert mark in read.inside("svg", "text")
    assert never not in " ".join(read.inside("svg", "text"))
    assert f"{mark}, 2 points" in read.plots[0]


def test_of_many_hours_the_axis_tells_the_days(tmp_path: pathlib.Path) -> None:
    hours = (np.datetime64("2026-03-01T00") + np.arange(96)).astype("datetime64[us]")
    html = page(tmp_path, {"hour": pa.array(hours), **metric("n", range(96))}, {})
    axis = Page(html[: html.index("The table")]).inside("svg", "text")
    assert [text for text in axis if text.startswith("2026")] == [f"2026-03-0{day}" for day in (1, 2, 3, 4)]


def test_rows_and_columns_of_a_heat_map_are_in_the_order_of_their_keys(tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, square(13), {})
    texts = Page(html).inside("svg", "text")
    assert texts[:13] == texts[13:26] == sorted(texts[:13])
    assert "hatched" not in Page(html).words


def square(side: int, lowest: float = 900.0) -> dict[str, Any]:
    """A number for each pair of two keys, none of them in the order of the table."""
    names = [f"{7 * at % side:02d}" for at in range(side)]
    numbers = lowest + np.arange(side * side)
    return {"shop": np.repeat(names, side), "tier": names * side, **metric("n", numbers.tolist(), 10.0)}


def test_cells_below_their_error_bar_are_hatched_and_a_line_of_the_legend_says_so(tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, square(13, lowest=18.0), {})
    hatches = re.findall(r'<path d="([^"]*)"[^>]*stroke-dasharray', html)
    lines = " ".join(hatches).count("M")
    assert lines == 2  # 1.96 * 10 is more than 19 and less than 20
    assert "hatched: smaller than its error bar" in Page(html).words


def large(rows: int) -> dict[str, Any]:
    at = np.arange(rows)
    days = np.datetime64("2000-01-01") + at % 1000
    columns: dict[str, Any] = {
        "product": pa.array([f"product {i // 1000:06d}" for i in range(rows)]),
        "day": pa.array(days),
    }
    for number in range(4):
        columns |= {f"n{number}": pa.array(np.sin(at) * 1000), f"n{number}_stddev": pa.array(np.full(rows, 30.0))}
    return columns


def test_the_page_of_a_large_table_is_small(tmp_path: pathlib.Path) -> None:
    assert len(page(tmp_path, large(100_000), {}).encode()) < 3_000_000


@pytest.mark.bench
def test_a_million_rows_take_less_than_a_call_each(tmp_path: pathlib.Path) -> None:
    page(tmp_path, groceries(3, 2))
    columns = large(1_000_000)
    page(tmp_path, columns, {})
    from_file = {"weekly": tmp_path / "weekly.parquet"}
    assert len(render({}, from_file).encode()) < 3_000_000
    assert calls_of(lambda: render({}, from_file)) < 1_000_000


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1, 2], ids=["light", "dark", "print"])
def test_text_can_be_read_in_all_schemes(whole: str, scheme: int) -> None:
    blocks = [
        dict(re.findall(r"(--[\w-]+): (#[0-9a-f]{6})", block))
        for block in re.findall(r":root \{(.*?)\}", whole, re.DOTALL)
    ]
    colours = blocks[0] | blocks[scheme]
    for text in ("--ink", "--quiet", "--link"):
        for ground in ("--card", "--page", "--empty"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
    assert contrast(colours["--ink"], colours["--warn"]) >= 4.5
    for mark in ("--mark", "--bar", "--range-line"):
        assert contrast(colours[mark], colours["--card"]) >= 3, mark
    assert contrast(colours["--ink"], colours["--bar"]) >= 3  # error bars on bars
    used = set(re.findall(r"var\((--[\w-]+)\)", whole))
    assert used <= set(colours)


def test_the_measure_of_contrast_is_that_of_the_guidelines() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
