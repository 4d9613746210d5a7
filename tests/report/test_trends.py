"""One page of several published runs: what belongs together, in which order, as which series, and what it costs.

In: folders as runs publish them, made of tables and manifests. Out: the page, or the reason why there is none. Holds: numbers are
compared with those of the tables, and joint costs with the accountant. Not covered: real runs (`test_report_command`).
"""

import datetime
import json
import math
import pathlib
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dp_pipelines.accounting.accountant import epsilon_of
from dp_pipelines.accounting.mechanism_record import MechanismRecord
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.release.manifest import digests
from dp_pipelines.report.trends.published_runs import ReleasedRun, check_together, in_order, read_run
from dp_pipelines.report.trends.trends_page import joint_costs, render_trends
from tests.report.page import Page, barriers, listed, manifest, metric
from tests.report.test_report import SHAPES, UGLY
from tests.report.test_report_in_a_browser import CHROMIUM, Browser, measured

RECORD = {"stage": "weekly", "name": "rows", "kind": "gaussian", "scale": "4096/1", "l2_squared": 1024**2, "l0": 1}
COUNTED = FrozenMapping({"orders": "count"})
WEEKS = ["2026-01-05", "2026-01-12", "2026-01-19", "2026-01-26"]


def release(
    folder: pathlib.Path, name: str, columns: dict[str, Any], kinds: Mapping[str, str] = COUNTED, **changed: Any
) -> pathlib.Path:
    """A published folder of a run whose one stage `weekly` has these columns, and metrics of these kinds."""
    place = folder / name
    place.mkdir(parents=True)
    pa.parquet.write_table(pa.table(columns), place / "weekly.parquet")
    (place / "report.html").write_text("a page")
    keys = [key for key in columns if f"{key}_stddev" not in columns and not key.endswith("_stddev")]
    stage = {
        "name": "weekly",
        "partition_by": keys,
        "metrics": {metric: {"kind": kind} for metric, kind in kinds.items()},
    }
    content = manifest(run_id=name, params={}, job="j", mechanisms=[RECORD], stages=[stage], **changed)
    files = {path.name: path for path in place.iterdir()}
    (place / "manifest.json").write_text(json.dumps(content | {"files": digests(files)}))
    return place


def ledger(round_: int, **changed: Any) -> dict[str, Any]:
    """What a manifest says of the ledger at a run of a plan."""
    return {**manifest()["ledger"], "round": round_, **changed}


def orders(*values: float, names: Sequence[str] = "abcdefghij") -> dict[str, Any]:
    """A table with a number of orders for each shop."""
    return {"shop": list(names[: len(values)]), **metric("orders", list(values), 10.0)}


def weekly(folder: pathlib.Path, tables: list[dict[str, Any]]) -> list[pathlib.Path]:
    """One release a week."""
    return [
        release(folder, week, table, ledger=ledger(at + 1))
        for at, (week, table) in enumerate(zip(WEEKS, tables, strict=False))
    ]


def read(*folders: pathlib.Path) -> list[ReleasedRun]:
    """The runs in these folders."""
    return [read_run(folder) for folder in folders]


def test_each_group_is_a_series_over_the_runs_with_the_numbers_of_the_tables(tmp_path: pathlib.Path) -> None:
    folders = weekly(tmp_path, [orders(100, 900), orders(120, 800), orders(140, 700)])
    html = render_trends(read(*folders))
    assert barriers(html) == []
    page = Page(html)
    assert not page.unbalanced
    first, second = page.plots[:2]
    assert first.startswith("orders of b over time: 900 ± 20 at 2026-01-05, 700 ± 20 at 2026-01-19, 3 points; ")
    assert first.endswith("; falls")
    assert second.startswith("orders of a over time: 100 ± 20 at 2026-01-05")
    cells = [text for text in page.inside("td", "span") if "±" not in text]
    assert cells == ["900", "800", "700", "100", "120", "140"]
    assert "All 2 groups that were published, the largest first." in page.words


def presentation(title: str, label: str) -> dict[str, Any]:
    """How a job of one stage and one metric wants to be shown."""
    metrics = {"orders": {"label": label, "measure": "pieces"}}
    stages = {"weekly": {"title": "By shop", "description": "Each shop counts.", "metrics": metrics}}
    return {"title": title, "description": "What was ordered.", "stages": stages}


def test_titles_descriptions_and_labels_are_those_of_the_last_run(tmp_path: pathlib.Path) -> None:
    folders = [
        release(tmp_path, week, orders(*values), ledger=ledger(at + 1), presentation=presentation(*said))
        for at, (week, values, said) in enumerate(
            [(WEEKS[1], (120, 800), ("Shops", "Orders")), (WEEKS[0], (100, 900), ("Old", "Sales"))]
        )
    ]
    html = render_trends(read(*folders))
    assert barriers(html) == []
    page = Page(html)
    assert page.words.index("Shops") < page.words.index("What was ordered.") < page.words.index("By shop")
    assert all(words in page.words for words in ("What was ordered.", "Each shop counts.", "the number of rows"))
    assert page.plots[0].startswith("Orders (pieces) of b over time: 900 ± 20 at 2026-01-05, 800 ± 20 at 2026-01-12")
    assert "Sales" not in page.words
    plain = [release(tmp_path / "plain", week, orders(100, 900), ledger=ledger(1)) for week in WEEKS[:2]]
    assert Page(render_trends(read(*plain))).plots[0].startswith("orders of b over time")


def test_numbers_of_different_windows_are_added_up_and_those_of_other_runs_have_a_mean(tmp_path: pathlib.Path) -> None:
    tables = [orders(100, 900), orders(120, 800), orders(140, 700)]
    words = Page(render_trends(read(*weekly(tmp_path, tables)))).words
    bar = 1.96 * 10 / 3**0.5
    assert f"Mean of the 3 runs: 800 ± {bar:.0f}" in words
    windows = [
        release(tmp_path / "windows", f"run {at}", table, ledger=ledger(1, window=week))
        for at, (table, week) in enumerate(zip(tables, WEEKS, strict=False))
    ]
    words = Page(render_trends(read(*windows))).words
    assert f"Sum of the 3 runs: 2,400 ± {bar * 3:.0f}" in words
    assert "Mean of" not in words


@pytest.mark.parametrize("windows", [True, False])
def test_weekly_customers_have_a_mean_by_stage_and_are_never_added_up(tmp_path: pathlib.Path, windows: bool) -> None:
    kinds = {**COUNTED, "customers": "privacy_id_count"}
    tables = [orders(100, 900) | metric("customers", [50.0 + at, 500.0], 2.0) for at in range(3)]
    runs = [
        release(tmp_path, f"run {at}", table, kinds, ledger=ledger(1, window=WEEKS[at] if windows else ""))
        for at, table in enumerate(tables)
    ]
    words = Page(render_trends(read(*runs))).words
    _, _, of_customers = words.partition("customers : the number of")
    shown, _, _ = of_customers.partition("The table")
    assert shown.count("Mean of the 3 runs") == 2
    assert "Sum of" not in shown
    assert words.count("cannot be added up: one of the") == 1
    assert "may be in several runs and counts in each" in words


def test_stages_are_in_the_order_of_the_job_and_an_empty_one_keeps_its_place(tmp_path: pathlib.Path) -> None:
    names = ["weekly", "by_city", "a_total"]
    folders = weekly(tmp_path, [orders(100, 900), orders(120, 800)])
    for folder in folders:
        shared = json.loads((folder / "manifest.json").read_text())
        (stage,) = shared["stages"]
        shutil.copy(folder / "weekly.parquet", folder / "a_total.parquet")
        nothing = pa.parquet.read_table(folder / "weekly.parquet").slice(0, 0)
        pa.parquet.write_table(nothing, folder / "by_city.parquet")
        files = {path.name: path for path in folder.iterdir() if path.name != "manifest.json"}
        shared |= {"stages": [{**stage, "name": name} for name in names], "files": digests(files)}
        (folder / "manifest.json").write_text(json.dumps(shared))
    html = render_trends(read(*folders))
    assert re.findall(r'<h2 id="stage-\d+"><bdi>([^<]*)', html) == names


def test_a_partition_column_called_run_is_not_taken_for_the_runs(tmp_path: pathlib.Path) -> None:
    tables = [{"run": ["a", "b"], **metric("orders", [100.0 + at, 900.0 - at], 10.0)} for at in range(3)]
    words = Page(render_trends(read(*weekly(tmp_path, tables)))).words
    assert f"Mean of the 3 runs: 899 ± {1.96 * 10 / 3**0.5:.0f}" in words
    assert "Sum of the" not in words
    assert "All 2 groups that were published, the largest first." in words


def test_a_series_with_a_gap_and_a_mean_have_no_sum(tmp_path: pathlib.Path) -> None:
    words = Page(render_trends(read(*weekly(tmp_path, [orders(100, 900), orders(120), orders(140)])))).words
    assert "Mean of the 3 runs: 120" in words  # the one that every run has
    assert words.count(" of the 3 runs: ") == 1
    means = [{"shop": ["a"], **metric("orders", [value], 1.0)} for value in (5.0, 6.0)]
    folders = weekly(tmp_path / "means", means)
    for folder in folders:
        content = json.loads((folder / "manifest.json").read_text())
        content["stages"][0]["metrics"]["orders"]["kind"] = "mean"
        (folder / "manifest.json").write_text(json.dumps(content))
    assert " of the 2 runs: " not in Page(render_trends(read(*folders))).words


def test_nothing_is_added_up_over_runs_of_which_one_chose_its_rows_by_their_numbers(tmp_path: pathlib.Path) -> None:
    folders = weekly(tmp_path, [orders(100, 900), orders(120, 800), orders(140, 700)])
    assert "Mean of the 3 runs: " in Page(render_trends(read(*folders))).words
    content = json.loads((folders[1] / "manifest.json").read_text())
    content["stages"][0]["shown"] = {"groups": 9, "rows": 2, "order_by": [], "words": ["2 of 9 groups pass"]}
    (folders[1] / "manifest.json").write_text(json.dumps(content))
    assert " of the 3 runs: " not in Page(render_trends(read(*folders))).words


def test_of_many_groups_the_largest_are_shown_and_the_choice_is_said(tmp_path: pathlib.Path) -> None:
    tables = [orders(*(100.0 * (at + 1) for at in range(13)), names="abcdefghijklm") for _ in range(2)]
    page = Page(render_trends(read(*weekly(tmp_path, tables))))
    assert (
        "Of the 13 groups that were published, plots and table show the 6 largest by orders over all runs."
        in page.words
    )
    assert [text for text in page.inside("p", "bdi") if len(text) == 1] == list("mlkjih")
    assert set(page.inside("tr", "th", "bdi")) & set("abcdefg") == set()


def test_a_group_that_a_run_did_not_publish_is_a_gap(tmp_path: pathlib.Path) -> None:
    folders = weekly(tmp_path, [orders(100, 900), orders(120), orders(140, 700), orders(150, 800)])
    html = render_trends(read(*folders))
    plot = html[html.index("orders of b over time") :].split("aria-label")[0]
    (line,) = re.findall(r'<path d="([^"]*)" style="fill: none; stroke: var\(--mark\); stroke-width: 1.4', plot)
    assert line.count("M") == 1  # of three points only the last two are neighbours
    assert plot.count("h0") == 3


@given(st.permutations(range(4)))
@settings(max_examples=8, deadline=None)
def test_the_order_in_which_folders_are_named_changes_nothing_if_runs_tell_theirs(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    folders = weekly(tmp_path_factory.mktemp("any"), [orders(100.0 + at, 900) for at in range(4)])
    assert render_trends(read(*(folders[at] for at in order))) == render_trends(read(*folders))


@pytest.mark.parametrize(
    ("ids", "changed", "words", "texts"),
    [
        (["b", "a"], [{"ledger": ledger(1, window="2026-02-01")}, {"ledger": ledger(1, window="2026-01-01")}],
         "window of event time", ["2026-01-01", "2026-02-01"]),
        (["b", "a"], [{"params": {"week": "2026-W03"}}, {"params": {"week": "2026-W02"}}], "parameter week",
         ["2026-W02", "2026-W03"]),
        (["b", "a"], [{"params": {"day": "2026-01-02 00:00:00"}}, {"params": {"day": "2026-01-01"}}], "parameter day",
         ["2026-01-01", "2026-01-02"]),
        (["2026-02", "2026-01"], [{}, {}], "run id", ["2026-01", "2026-02"]),
        (["b", "a"], [{"ledger": ledger(2)}, {"ledger": ledger(1)}], "number of the run in its plan", ["a", "b"]),
        (["b", "a"], [{"ledger": {}}, {"ledger": {}}], "order in which the folders were named", ["b", "a"]),
    ],
    ids=["window", "week", "day", "run id", "number", "named"],
)  # fmt: skip
def test_runs_are_ordered_by_what_tells_their_time(
    tmp_path: pathlib.Path, ids: list[str], changed: list[dict[str, Any]], words: str, texts: list[str]
) -> None:
    for at, (name, more) in enumerate(zip(ids, changed, strict=True)):
        release(tmp_path, name, orders(100.0 + at), **{key: value for key, value in more.items() if key != "params"})
        content = json.loads((tmp_path / name / "manifest.json").read_text())
        (tmp_path / name / "manifest.json").write_text(json.dumps(content | more))
    _, order = in_order(read(*(tmp_path / name for name in ids)))
    assert (order.words, list(order.texts)) == (words, texts)


def test_runs_that_publish_a_week_each_have_the_week_as_their_axis(tmp_path: pathlib.Path) -> None:
    days = [datetime.date.fromisoformat(week) for week in WEEKS]
    tables = [
        {"shop": ["a", "b"], "week": pa.array([day] * 2), **metric("orders", [5.0 + day.day, 900.0])} for day in days
    ]
    html = render_trends(read(*weekly(tmp_path, tables)))
    page = Page(html)
    assert page.plots[1].startswith("orders of a over time: 10 ± 20 at 2026-01-05, 31 ± 20 at 2026-01-26, 4 points")
    assert "run" not in page.inside("th", "bdi")
    overlap = weekly(tmp_path / "again", [tables[0], tables[0], tables[1]])
    again = Page(render_trends(read(*overlap)))
    assert "run" in again.inside("th", "bdi")
    assert any("orders of a · 2026-01-05 over time" in plot and "2 points" in plot for plot in again.plots)


def test_quantiles_are_bands_over_the_runs_and_other_lists_are_named(tmp_path: pathlib.Path) -> None:
    folders = []
    for at, week in enumerate(WEEKS):
        table: dict[str, Any] = orders(100, 900)
        table["q"], table["q_stddev"] = listed([[1.0 + at, 5.0, 9.0]] * 2, 0.1)
        table["h"], table["h_stddev"] = listed([[1.0, 5.0]] * 2, 0.1)
        release(tmp_path, week, table, ledger=ledger(at + 1))
        path = tmp_path / week / "manifest.json"
        content = json.loads(path.read_text())
        content["stages"][0]["metrics"] |= {"q": {"quantiles": [0.1, 0.5, 0.9]}, "h": {"edges": [0, 1, 2]}}
        path.write_text(json.dumps(content))
        folders.append(tmp_path / week)
    page = Page(render_trends(read(*folders)))
    assert sum(plot.startswith("Quantiles of q of") for plot in page.plots) == 2
    assert "Not plotted: h ." in page.words


@pytest.mark.parametrize("tables", [[[], []], [[5.0], []], [[None], [5.0]], [[None], [None]]], ids=str)
def test_runs_that_published_little_or_nothing_give_a_page(tmp_path: pathlib.Path, tables: list[list[Any]]) -> None:
    columns = [{"shop": pa.array(list("ab")[: len(t)], pa.string()), **metric("orders", t)} for t in tables]
    page = Page(render_trends(read(*weekly(tmp_path, columns))))
    assert not page.unbalanced
    assert "for all 52 runs. The ledger sets it aside as a whole" in page.words
    assert ("No group was published." in page.words) == (tables == [[], []])


NUMBERS = st.one_of(st.none(), st.floats(), st.floats(-1e4, 1e4))


@settings(max_examples=15, deadline=None)
@given(st.lists(st.lists(st.tuples(st.text(max_size=4), NUMBERS, NUMBERS), max_size=4), min_size=2, max_size=4))
def test_no_released_number_breaks_the_page(tmp_path_factory: pytest.TempPathFactory, runs: list[Any]) -> None:
    columns = [[list(column) for column in zip(*rows, strict=True)] if rows else [[], [], []] for rows in runs]
    tables = [{"shop": pa.array(a, pa.string()), **metric("orders", b, c)} for a, b, c in columns]
    html = render_trends(read(*weekly(tmp_path_factory.mktemp("any"), tables)))
    assert not Page(html).unbalanced
    numbers = re.findall(r'(?:cx|cy|x|y|d)="([^"]*)"', html)
    assert not [text for text in numbers if "nan" in text or "inf" in text]


@pytest.mark.parametrize("ugly", UGLY, ids=range(len(UGLY)))
def test_no_text_of_a_run_changes_an_element_of_the_page(tmp_path: pathlib.Path, ugly: str) -> None:
    def html(text: str, place: str) -> str:
        for at in (1, 2):
            more = {"dataset": text, "privacy_unit": text, "plan": text, "not_covered": [text]}
            release(tmp_path / place, f"run{at}", {text: [text, "b"], **metric("orders", [at * 100.0, 9.0])}, **more,
                    ledger=ledger(at, account=text))  # fmt: skip
        return render_trends(read(tmp_path / place / "run1", tmp_path / place / "run2"))

    assert Page(html(ugly, "ugly")).shape == Page(html("plain key", "plain")).shape


def test_the_page_fetches_nothing(tmp_path: pathlib.Path) -> None:
    html = render_trends(read(*weekly(tmp_path, [orders(100, 900), orders(120, 800)])))
    assert not SHAPES.findall(html)
    assert str(tmp_path) not in html


def test_what_runs_cost_together_is_what_the_accountant_says_of_their_records(tmp_path: pathlib.Path) -> None:
    runs = read(*weekly(tmp_path, [orders(100.0 + at) for at in range(4)]))
    found = joint_costs(runs)
    record = MechanismRecord.from_json(RECORD)
    expected = [epsilon_of([record], 1e-6, runs=count) for count in (1, 2, 3, 4)]
    assert found == pytest.approx(expected, rel=1e-9)
    assert sum(expected[:1] * 4) > expected[3]  # together they cost less than their sum
    page = Page(render_trends(runs))
    assert f"{found[3]:.4g}" in page.words
    assert any(plot.startswith("Epsilon of the runs together: ") for plot in page.plots)


@pytest.mark.parametrize(
    "changed",
    [
        {"mechanisms": []},
        {"mechanisms": [{"kind": "new"}]},
        {"mechanisms": 3},
        {"accounted": {}},
        {"accounted": {"delta": 2}},
    ],
    ids=["none", "unknown", "odd", "no delta", "a delta of 2"],
)
def test_where_nobody_can_tell_the_joint_cost_none_is_told(tmp_path: pathlib.Path, changed: dict[str, Any]) -> None:
    folders = weekly(tmp_path, [orders(100), orders(120)])
    for folder in folders:
        content = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(content | changed))
    assert joint_costs(read(*folders)) == [None, None]
    assert "epsilon together" not in Page(render_trends(read(*folders))).words


def test_costs_of_different_windows_are_not_put_together(tmp_path: pathlib.Path) -> None:
    runs = read(*(release(tmp_path, week, orders(100), ledger=ledger(1, window=week)) for week in WEEKS[:2]))
    assert joint_costs(runs) == [None, None]
    assert "each with a budget of its own" in Page(render_trends(runs)).words


def refused(*folders: pathlib.Path) -> RequestError:
    """Why there is no page of these."""
    with pytest.raises(RequestError) as caught:
        check_together(read(*folders))
    return caught.value


def test_runs_of_other_datasets_plans_or_units_are_refused(tmp_path: pathlib.Path) -> None:
    one = release(tmp_path, "one", orders(100))
    for name, value in (("dataset", "x"), ("plan", "y"), ("privacy_unit", "z")):
        other = release(tmp_path, name, orders(120), **{name: value})
        error = refused(one, other)
        assert str(other) in error.field
        assert f"{value!r}" in error.message
        assert error.hint


def test_a_run_that_is_there_twice_is_refused_and_another_run_of_that_name_is_not(tmp_path: pathlib.Path) -> None:
    one = release(tmp_path / "1", "run", orders(100))
    copy = release(tmp_path / "2", "run", orders(100))
    assert "which is also in" in refused(one, copy).message
    assert "which is also in" in refused(one, release(tmp_path / "3", "run", orders(120))).message
    loose = [release(tmp_path / at, "run", orders(float(at)), ledger={"head": None}) for at in ("4", "5")]
    check_together(read(*loose))  # without a ledger a run id says nothing, and these have different numbers
    assert "which is also in" in refused(loose[0], release(tmp_path / "6", "run", orders(4.0), ledger={})).message


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: (f / "weekly.parquet").unlink(), "is damaged"),
        (lambda f: (f / "weekly.parquet").write_bytes(b"PAR1"), "is damaged"),
        (lambda f: (f / "manifest.json").unlink(), "is no release"),
        (lambda f: (f / "manifest.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "manifest.json").write_text('{"format": 99}'), "cannot be read"),
        (
            lambda f: (f / "manifest.json").write_text('{"format": 1, "files": {"../x": {"sha256": ""}}}'),
            "files elsewhere",
        ),
    ],
    ids=["no table", "another table", "no manifest", "no JSON", "a later format", "files elsewhere"],
)
def test_a_folder_that_is_no_whole_release_is_refused(tmp_path: pathlib.Path, damage: Any, words: str) -> None:
    folder = release(tmp_path, "one", orders(100))
    damage(folder)
    with pytest.raises(RequestError, match=words) as caught:
        read_run(folder)
    assert caught.value.hint


def test_a_release_without_its_page_is_whole(tmp_path: pathlib.Path) -> None:
    folder = release(tmp_path, "one", orders(100))
    (folder / "report.html").unlink()
    assert read_run(folder).name == "one"


def test_a_job_that_changed_beside_its_plan_is_said(tmp_path: pathlib.Path) -> None:
    folders = weekly(tmp_path, [orders(100), orders(120)])
    assert "The job file changed." not in Page(render_trends(read(*folders))).words
    content = json.loads((folders[1] / "manifest.json").read_text())
    (folders[1] / "manifest.json").write_text(json.dumps(content | {"job": "other"}))
    assert "The job file changed." in Page(render_trends(read(*folders))).words


def test_tables_with_other_types_are_refused_with_the_stage(tmp_path: pathlib.Path) -> None:
    folders = weekly(tmp_path, [orders(100), {"shop": pa.array([7]), **metric("orders", [5.0])}])
    with pytest.raises(RequestError, match="stage 'weekly': has tables that cannot be read as one"):
        render_trends(read(*folders))


def test_a_manifest_with_anything_missing_gives_a_page(tmp_path: pathlib.Path) -> None:
    folders = weekly(tmp_path, [orders(100, 900), orders(120, 800)])
    for folder in folders:
        content = json.loads((folder / "manifest.json").read_text())
        kept = {"format": 1, "files": content["files"], "budget": {"epsilon": math.inf, "runs": "x"}, "stages": [3, {}]}
        (folder / "manifest.json").write_text(json.dumps(kept))
    page = Page(render_trends(read(*folders)))
    assert len(page.plots) == 2
    assert not page.unbalanced


@pytest.mark.skipif(CHROMIUM is None, reason="needs the program `chromium`, which is not installed")
@pytest.mark.parametrize("width", [375, 1280])
def test_a_browser_shows_every_text_apart_whole_and_large(tmp_path: pathlib.Path, width: int) -> None:
    folders = weekly(tmp_path / "runs", [orders(100.0 + at, 900, 5000, names=["a" * 60, "b", "c"]) for at in range(4)])
    found = measured(Browser(tmp_path), render_trends(read(*folders)), width)
    assert found.pop("texts") > 10
    assert found == {"over": [], "cut": 0, "small": 0, "sideways": 0}
