"""Titles, labels, units of measure and the order of rows cost nothing: no other plan, no other run, no new draw.

In: the shop. Out: pages, messages, exit codes, the ledger. Holds: runs are real. Not covered: how the page looks (tests/report).
"""

import csv
import json
import pathlib
import re
from collections.abc import Callable
from typing import Any

import pyarrow.parquet as pq
import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.request.request import check
from dp_pipelines.jobs.spec import job_file, presentation
from dp_pipelines.metrics.error_bars import deviations_in_bar
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]


def shown(**changes: Any) -> dict[str, Any]:
    """The shop's job with titles, labels and an order."""
    made: Any = stage(title="Weekly <orders>", description="By product.", order_by="orders desc", **changes)
    made["metrics"]["orders"]["label"] = "Number of orders"
    made["metrics"]["revenue"] |= {"label": "Revenue", "measure": "EUR"}
    return {"title": "What the shop sells", "description": "For the board.", "stages": {"weekly": made}}


def page_of(folder: pathlib.Path) -> str:
    """The page in a folder."""
    return (folder / "report.html").read_text(encoding="utf-8")


def test_words_and_the_order_of_rows_are_no_part_of_a_plan_or_of_a_run(shop: Shop) -> None:
    plain, presented = (check(job_file.load(str(shop.write(**job))), ()) for job in ({}, shown()))
    assert (plain.content, plain.asked) == (presented.content, presented.asked)
    limited = check(job_file.load(str(shop.write(**shown(limit=3)))), ())
    other = shown(limit=3)
    other["stages"]["weekly"]["order_by"] = "revenue desc"
    assert limited.content != plain.content  # which rows are published is no presentation
    assert check(job_file.load(str(shop.write(**other))), ()).content != limited.content


def test_a_page_has_the_words_of_its_job_and_is_made_again_with_others_for_free(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.folder)
    assert call("run", shop.job, "--output", "out").code == 0
    before, charged = page_of(shop.folder / "out"), shop.charged()
    assert "<h1><bdi>shop</bdi></h1>" in before
    shop.write(**shown())
    said = call("run", shop.job, "--output", "out")
    assert said.code == 0
    command = f"dp-pipelines report {shop.folder / 'out'} --job {shop.job} --output page.html"
    assert (
        "the stored page has other titles or names and rows in another order than the job file; to make it again, "
        in said.err
    )
    assert command in said.err
    assert page_of(shop.folder / "out") == before
    assert call("report", "out", "--job", shop.job, "--output", "page.html").code == 0
    page = (shop.folder / "page.html").read_text(encoding="utf-8")
    for words in ("What the shop sells", "For the board.", "Weekly &lt;orders&gt;", "By product.", "Revenue (EUR)"):
        assert words in page
    assert "Number of orders" in page
    assert ">revenue<" not in page
    assert shop.charged() == charged
    shop.write(dataset="other", **shown())
    assert "is of the dataset 'other', and the release of 'shop'" in call("report", "out", "--job", shop.job).err
    shop.write(**shown(limit=2))
    refused = call("report", "out", "--job", shop.job)
    assert (
        refused.code,
        "limit: is not that of the release, of which all published rows are shown" in refused.err,
    ) == (2, True)
    assert "is for one folder" in call("report", "out", "out", "--job", shop.job).err


def test_an_order_of_rows_that_the_job_has_no_more_is_told_and_left_out_of_a_new_page(
    shop: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shop.folder)
    shop.write(stages={"weekly": stage(order_by="product desc")})
    assert call("run", shop.job, "--output", "out").code == 0
    assert "product desc" in page_of(shop.folder / "out")
    shop.write()
    said = call("run", shop.job, "--output", "out").err
    assert "the stored page has rows in another order than the job file; to make it again, for free" in said
    assert call("report", "out", "--job", shop.job, "--output", "page.html").code == 0
    assert "product desc" not in (shop.folder / "page.html").read_text(encoding="utf-8")


def test_a_release_made_with_words_has_them_and_says_nothing_on_a_retry(shop: Shop, call: Call) -> None:
    shop.write(**shown())
    for _ in range(2):
        said = call("run", shop.job, "--output", shop.folder / "out")
        assert (said.code, said.err) == (0, "")
    page = page_of(shop.folder / "out")
    assert "<h1><bdi>What the shop sells</bdi></h1>" in page
    assert "Revenue (EUR)" in page


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "product"}, "is the name of another column too"),
        ({"label": "Revenue"}, "is the name of another column too"),
        ({"label": ""}, "must not be empty"),
        ({"measure": "x" * 41}, "at most 40 characters"),
        ({"label": "a\x1bb"}, "control"),
    ],
)
def test_labels_that_cannot_stand_on_a_page_are_refused(shop: Shop, change: dict[str, str], words: str) -> None:
    job = shown()
    job["stages"]["weekly"]["metrics"]["orders"] |= change
    with pytest.raises(RequestError, match=words):
        job_file.load(str(shop.write(**job)))


def test_what_a_manifest_says_is_what_the_job_says(shop: Shop) -> None:
    job = job_file.load(str(shop.write(**shown()))).job
    assert presentation.of_job(job)["stages"]["weekly"]["metrics"]["revenue"] == {"label": "Revenue", "measure": "EUR"}
    assert presentation.of_job(job_file.load(str(shop.write())).job) == {}


def test_a_page_with_a_job_that_asks_for_other_numbers_says_that_they_are_not_released(shop: Shop, call: Call) -> None:
    out = shop.folder / "out"
    assert call("run", shop.job, "--output", out).code == 0

    def told(**changes: Any) -> list[str]:
        made: Any = stage(**changes)
        made["metrics"] |= changes.get("metrics", {})
        shop.write(stages={"weekly": made})
        said = call("report", out, "--job", shop.job, "--output", shop.folder / "page.html")
        assert said.code == 0, said.err
        return said.err.splitlines()

    assert told() == []
    assert told(title="Orders", order_by="orders desc") == []
    paid = stage()["metrics"]["revenue"]
    other = {"orders": {"kind": "count"}, "revenue": paid | {"max_value": 77}}
    (clamp,) = told(metrics=other)
    assert clamp == (
        "note: stage weekly of the job has a limit that the release has not: price below 0 counts as 0, above 77 as 77; the page "
        "shows what was released; to have it, run the job, which is charged anew"
    )
    (bound,) = told(bounds={"max_partitions_contributed": 1, "max_contributions_per_partition": 9})
    assert "at most 9 rows of one customer are counted in each group by product" in bound
    (metric,) = told(metrics={"orders": {"kind": "count"}, "revenue": paid, "buyers": {"kind": "privacy_id_count"}})
    assert metric.startswith("note: stage weekly of the job has buyers, the release has not; ")
    assert told(bounds="auto") == []


def formatted(**csv: bool) -> dict[str, Any]:
    """The shop's job with formats: of the job, of the stage and of a metric; revenue has none of its own."""
    made: Any = stage(partition_by=[], bounds={"max_contributions_per_partition": 8}, format=".1f")
    made["metrics"] |= {
        "orders": {"kind": "count", "format": ",.0f"},
        "share": {"kind": "ratio", "of": "revenue", "to": "orders", "format": ".2%"},
    }
    return {"format": ".3f", "stages": {"weekly": made}, "outputs": {"files": [{"csv": csv}]}}


def test_numbers_are_written_as_the_job_says_on_the_page_in_the_terminal_and_in_csv(shop: Shop, call: Call) -> None:
    shop.write(**formatted(rounded=True, interval=True))
    said = call("run", shop.job, "--output", shop.folder / "out")
    assert said.code == 0, said.err
    page, terminal = page_of(shop.folder / "out"), said.out
    (row,) = pq.read_table(shop.folder / "out" / "weekly.parquet").to_pylist()
    (entry,) = json.loads((shop.folder / "out" / "manifest.json").read_text())["stages"]
    for name, form in (("orders", ",.0f"), ("revenue", ".1f")):
        deviations = deviations_in_bar(entry["metrics"][name]["noise"])
        value, bar = format(row[name], form), deviations * row[f"{name}_stddev"]
        (said_bar,) = re.findall(rf"^ *{name} +{re.escape(value)} ± ([\d,.]+) *$", terminal, re.MULTILINE)
        told = float(said_bar.replace(",", ""))
        assert bar <= told <= bar + 10 ** -int(form[-2])
        assert re.search(rf">\s*{re.escape(value)}\s*<", page)
    share = f"{row['share']:.2%}"
    assert re.search(rf"^ *share +{re.escape(share)} \([\d.]+% … [\d.]+%\)", terminal, re.MULTILINE)
    assert share in page
    with (shop.folder / "out" / "weekly.csv").open(newline="") as file:
        (cells,) = csv.DictReader(file)
    assert cells["orders"] == f"{row['orders']:.0f}"
    assert cells["revenue"] == f"{row['revenue']:.1f}"
    assert cells["share"] == f"{row['share']:.4f}"
    bar = deviations_in_bar(entry["metrics"]["orders"]["noise"]) * row["orders_stddev"]
    assert float(cells["orders_from"]) <= row["orders"] - bar + 1
    assert float(cells["orders_to"]) >= row["orders"] + bar - 1


def test_a_run_for_another_file_format_alone_names_the_command_that_is_free(shop: Shop, call: Call) -> None:
    budget = {"epsilon": 1.0, "delta": 1e-6, "runs": 2}
    words = "`dp-pipelines report FOLDER --job JOB --output NEW` gives"
    with_run = ("run", shop.write(budget=budget), "--output", shop.folder / "out", "--run-id")
    assert call(*with_run, "one").code == 0
    assert call("run", shop.job, "--output", shop.folder / "two", "--run-id", "two").code == 0
    shop.write(budget=budget, outputs={"files": ["csv"]})
    charged = shop.charged()
    for name, folder, code in (("one", "out", 2), ("three", "out", 2), ("one", "new", 2), ("three", "new", 3)):
        refused = call("run", shop.job, "--output", shop.folder / folder, "--run-id", name)
        assert (refused.code, words in refused.err) == (code, True), refused.err
    assert shop.charged() == charged
    assert call("report", shop.folder / "out", "--job", shop.job, "--output", shop.folder / "new").code == 0
    assert (shop.folder / "new" / "weekly.csv").exists()


def test_formats_are_no_part_of_a_plan_or_of_a_run_and_a_page_is_made_again_with_them(shop: Shop, call: Call) -> None:
    made: Any = formatted()
    with_formats = check(job_file.load(str(shop.write(**made))), ())
    del made["format"], made["stages"]["weekly"]["format"]
    for metric in made["stages"]["weekly"]["metrics"].values():
        metric.pop("format", None)
    without = check(job_file.load(str(shop.write(**made))), ())
    assert (with_formats.content, with_formats.asked) == (without.content, without.asked)
    assert call("run", shop.job, "--output", shop.folder / "out").code == 0
    charged, (row,) = shop.charged(), pq.read_table(shop.folder / "out" / "weekly.parquet").to_pylist()
    shop.write(**formatted())
    again = call("run", shop.job, "--output", shop.folder / "out")
    assert "the stored page has other formats of numbers than the job file" in again.err
    assert call("report", shop.folder / "out", "--job", shop.job, "--output", shop.folder / "new.html").code == 0
    assert f"{row['share']:.2%}" in (shop.folder / "new.html").read_text(encoding="utf-8")
    assert f"{row['share']:.2%}" not in page_of(shop.folder / "out")
    assert shop.charged() == charged


@pytest.mark.parametrize("form", ["", "d", ".7f", ",.2e", ".2g", "{:.2f}", ".2f\n", "+.1f", "0>9.1f", ",.1", 2])
@pytest.mark.parametrize("where", ["job", "stage", "metric"])
def test_formats_that_are_none_are_refused_with_the_rule(shop: Shop, where: str, form: object) -> None:
    made: Any = stage()
    parts = {"job": {"stages": {"weekly": made}}, "stage": made, "metric": made["metrics"]["orders"]}
    parts[where]["format"] = form
    field = {"job": "", "stage": "stages.weekly.", "metric": "stages.weekly.metrics.orders."}[where]
    with pytest.raises(RequestError) as refused:
        job_file.load(str(shop.write(**parts["job"])))
    assert f"{field}format: " in str(refused.value)
    rule = "must be text" if form == 2 else "must be a format such as ',.0f', '.2f' or '.1%'"
    assert rule in str(refused.value)
