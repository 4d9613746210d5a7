"""The command `describe`: what its page says of jobs of every form, what it does not touch, and what it refuses.

In: jobs over the shop, made-up jobs, wrong ones. Out: pages, exit codes. Holds: a page of each form is kept as a golden file, so
that a change of its words is read by somebody. Run `UPDATE_GOLDEN=1 pytest` on this file to write them anew.
"""

import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet
import pytest

from dp_pipelines.collect.domain import Choices
from dp_pipelines.collect.question import Question
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.ledger.ledger import DEFAULT_NAME, Ledger
from dp_pipelines.release.manifest import NOT_COVERED
from dp_pipelines.report.attack_odds import example
from tests.golden import answers, jobs, wrong
from tests.helpers.extension_folders import needs
from tests.jobs.conftest import Said, Shop, purchases, stage
from tests.report.page import Page

Call = Callable[..., Said]

GOLDEN = pathlib.Path(__file__).parent / "golden"

HEADINGS = [
    "Purpose", "What is read", "What is published", "Who is protected, and from whom", "By what", "What that means",
    "What remains", "Necessity and proportionality", "Retention", "Legal bases", "Opinions and decision", "The plan",
]  # fmt: skip

TRAIN = {
    "kind": "train",
    "label": {"kind": "binary", "column": "dear"},
    "features": {"store": {"kind": "category", "categories": [1, 2, 3]}, "note": {"kind": "category", "most": 3}},
}
ROLLED = stage(
    partition_by=["store", "product"], rollup=[[], ["store"], ["store", "product"]], metrics={"orders": {"kind": "count"}}
)  # fmt: skip
FORMS: dict[str, dict[str, object]] = {
    "a_report": {"stages": {"weekly": stage(kept={"share": 0.1})}, "tuned": [{"stage": "weekly", "date": "2026-01-05"}]},
    "a_report_and_a_model": {
        "budget": {"epsilon": 2.0, "delta": 1e-6, "runs": 12, "split": "linear"},
        "params": {"since": {"type": "date"}},
        "where": "paid_at >= {since}",
        "columns": {"dear": "price > 10"},
        "stages": {"weekly": stage(unit_columns={"n": "count(*) OVER (ORDER BY paid_at)"}, where="n < 9"), "model": TRAIN},
    },
    "of_windows": {
        "params": {"week": {"type": "date"}},
        "window": {"column": "paid_at", "days": 7, "param": "week"},
        "privacy_unit": ["customer", "store"],
        "stages": {"totals": ROLLED, "best": stage(
            metrics={"most": {"kind": "count"}}, best={"k": 1, "by": "most"}, partitions={"public": [["p1"], ["p2"]]},
        )},
        "outputs": {"files": ["csv"]},
    },
    "of_joined_tables": {
        "source": None,
        "tables": {
            "orders": {"parquet": "data/part-0.parquet", "columns": {"day": "CAST(paid_at AS DATE)"}, "where": "price > 1"},
            "visits": {"parquet": "visits.parquet", "columns": {"day": "CAST(seen_at AS DATE)"}},
        },
        "privacy_unit": {"orders": "customer", "visits": "who"},
        "join": {
            "left": "orders", "right": "visits", "on": [["day", "day"]], "kind": "inner",
            "max_rows_per_unit": {"orders": 50, "visits": 50},
        },
        "stages": {"bought": stage(partition_by=["page"], metrics={"orders": {"kind": "count"}})},
    },
    "of_rounds": {
        "columns": {"dear": "price > 10"},
        "stages": {
            "model": {
                **TRAIN, "kind": "federate", "fit": {"rounds": 5, "sampling_rate": 0.2}, "expected_clients": 2000,
            }
        },
    },
    "of_votes": {
        "columns": {"dear": "price > 10"},
        "stages": {
            "model": {
                **TRAIN, "kind": "pate", "fit": {"teachers": 50, "answers": 20}, "public": {"parquet": "unlabelled.parquet"},
            }
        },
    },
    "of_parties": {
        "parties": {
            "people": "any",
            "members": {
                "north": {"address": "127.0.0.1:7001"},
                "south": {"address": "127.0.0.1:7002"},
                "notary": {"address": "127.0.0.1:7003", "rows": False},
            },
        },
        "stages": {"weekly": stage(partitions={"public": [["p1"], ["p2"]]}, metrics={"orders": {"kind": "count"}})},
    },
    "of_a_statement": {
        "stages": {
            "weekly": {
                "kind": "aggregate",
                "select": "SELECT product, count(*) AS orders, sum(price) AS revenue FROM source GROUP BY product",
                "clips": {"price": [0, 20]},
                "bounds": {"max_partitions_contributed": 3, "max_contributions_per_partition": 2},
            }
        }
    },
}  # fmt: skip

SHUFFLED = """
dataset: visits
source: {parquet: "reports.parquet"}
shuffler: {honest_reports: 15000, delta: 1.0e-6}
stages: {visited: {kind: collected, question: visited.json}}
"""
LOCAL = SHUFFLED.replace("shuffler: {honest_reports: 15000, delta: 1.0e-6}", "privacy_unit: phone")


@pytest.fixture
def here(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """The shop without a ledger, in the current folder, so that pages name no other."""
    monkeypatch.chdir(shop.folder)
    shop.without_ledger()
    rows = purchases(2).select(["customer", "paid_at", "note"]).rename_columns(["who", "seen_at", "page"])
    pa.parquet.write_table(rows, shop.folder / "visits.parquet")
    pa.parquet.write_table(purchases(3).select(["store", "note"]), shop.folder / "unlabelled.parquet")
    return shop


def compare(name: str, page: str) -> None:
    """A page with its golden file; the digest of the plan, which follows from all of it, may change."""
    page = re.sub(r"\*\*Plan\*\*: [0-9a-f]{16}", "**Plan**: ...", page)
    page, _, mark = page.rpartition("\n<!-- ")
    assert re.fullmatch(r"written by dp-pipelines [0-9a-f]{64} -->\n", mark)
    file = GOLDEN / f"{name}.md"
    if os.environ.get("UPDATE_GOLDEN"):
        file.write_text(page)
    assert page == file.read_text()


def headings(page: str) -> list[str]:
    """Its sections."""
    return re.findall(r"^## \d+\. (.*)$", page, re.MULTILINE)


@pytest.mark.parametrize("form", FORMS)
def test_the_page_of_each_form_is_the_golden_one_and_html_says_the_same(form: str, here: Shop, call: Call) -> None:
    here.write(**FORMS[form])
    params = [f"--param={name}=2025-01-06" for name in FORMS[form].get("params", {})]  # type: ignore[attr-defined]
    said = call("describe", "job.yaml", "--output", "page.md", *params)
    assert said.code == 0
    assert all(line.startswith("note: privacy_unit: protects each combination") for line in said.err.splitlines())
    assert "wrote page.md: a privacy impact assessment of shop" in said.out
    page = pathlib.Path("page.md").read_text()
    assert headings(page) == HEADINGS
    compare(form, page)
    assert call("describe", "job.yaml", *params).code == 0
    html = Page(pathlib.Path("assessment.html").read_text())
    assert html.unbalanced == []
    assert [text.partition(". ")[2] for text in html.inside("h2")] == HEADINGS
    for words in (*NOT_COVERED, "To fill in:"):
        assert words in html.words


@needs("local_dp")
@pytest.mark.parametrize(("name", "job"), [("collected_shuffled", SHUFFLED), ("collected_local", LOCAL)])
def test_the_page_of_collected_answers_is_the_golden_one(
    name: str, job: str, tmp_path: pathlib.Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    question = Question("visited", Choices(("bakery", "dairy", "fish")), epsilon=2)
    pathlib.Path("visited.json").write_text(question.to_json())
    pathlib.Path("job.yaml").write_text(job)
    said = call("describe", "job.yaml", "--output", "page.md")
    assert (said.code, said.err) == (0, "")
    page = pathlib.Path("page.md").read_text()
    assert headings(page) == HEADINGS
    compare(name, page)
    assert call("describe", "job.yaml", "--output", "page.html").code == 0


def test_other_rows_give_the_same_page_and_no_file_is_written_but_it(here: Shop, call: Call) -> None:
    here.write()
    assert call("describe", "job.yaml", "--output", "one.md").code == 0
    assert here.left() == ["one.md", "unlabelled.parquet", "visits.parquet"]
    assert not (here.folder / DEFAULT_NAME).exists()
    pa.parquet.write_table(purchases(77, rows=40), here.folder / "data" / "part-0.parquet")
    assert call("describe", "job.yaml", "--output", "two.md").code == 0
    assert pathlib.Path("one.md").read_bytes() == pathlib.Path("two.md").read_bytes()


def test_files_that_are_not_there_are_said_to_be_unchecked(here: Shop, call: Call) -> None:
    here.write(source={"parquet": "elsewhere/*.parquet"})
    said = call("describe", "job.yaml", "--output", "page.md")
    assert said.code == 0
    assert "files and expressions were not checked" in said.err
    page = pathlib.Path("page.md").read_text()
    assert "The files were not there when this page was written" in page
    assert "| price | not known | revenue of weekly |" in page


def test_what_the_account_has_spent_stands_there_and_the_ledger_does_not_change(shop: Shop, call: Call) -> None:
    shop.write()
    assert call("run", shop.job, "--output", shop.folder / "out", "--runner", "local").code == 0
    book = Ledger.open(str(shop.folder / DEFAULT_NAME))
    before, spent = book.head, book.state.accounts["shop"].spent
    book.note_tuning("shop", stage="weekly", configurations=1, content="", grid="", who="", sources=[], command="check")
    noted = book.head
    book.close()
    page = shop.folder / "page.md"
    assert call("describe", shop.job, "--output", page).code == 0
    assert re.search(r"\| all times \| 1000, 0\.5 \| 8, 1e-5 \| 992, ", page.read_text())
    assert re.search(r"\* 20\d\d-\d\d-\d\d with dp-pipelines check, stage weekly", page.read_text())
    book = Ledger.open(str(shop.folder / DEFAULT_NAME))
    assert (book.head, book.state.accounts["shop"].spent) == (noted, spent)
    assert before != noted
    book.close()
    assert call("describe", shop.job, "--output", page, "--ledger", "none").code == 0
    assert "all times" not in page.read_text()
    assert "No ledger is shown here" in page.read_text()
    assert call("describe", shop.job, "--output", page, "--ledger", shop.folder / "no.sqlite").code == 2


@pytest.mark.parametrize("number", [*range(0, jobs.ALL, answers.SHARES), 5, 13])
def test_a_made_up_job_is_described_where_it_is_planned_and_all_it_names_is_there(
    number: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = answers.write(tmp_path, number)
    planned, described = answers.call("plan", path, "--json"), answers.call("describe", path, "--output", "page.md")
    assert (described.code, described.err) == (planned.code, planned.err)
    if planned.code:
        assert not pathlib.Path("page.md").exists()
        return
    page = pathlib.Path("page.md").read_text().replace("\\", "")
    job = job_file.load(str(path)).job
    assert headings(page) == HEADINGS
    plan = json.loads(planned.out)
    assert f"| {example(plan['accounted']['epsilon'], plan['accounted']['delta']) or '100'} |" in page
    for name in plan["stages"]:
        assert name["name"] in page
    for name, declared in job.stages.items():
        best = getattr(declared, "best", None)
        for metric in () if best is not None else declared.metrics:
            assert f"| {name} | {metric} |" in page
    for column in job.unit:
        assert f"| {column} |" in page


@pytest.mark.parametrize("given", [*wrong.inputs()][:: answers.SHARES], ids=lambda given: given.name)
def test_a_wrong_job_is_refused_as_plan_refuses_it(given: wrong.Wrong, tmp_path: pathlib.Path) -> None:
    pa.parquet.write_table(purchases(0), tmp_path / "one.parquet")
    (tmp_path / "job.yaml").write_text(given.text)
    planned = answers.call("plan", tmp_path / "job.yaml", *given.options)
    if "--explain" in given.options or "--group" in given.options:
        return
    described = answers.call("describe", tmp_path / "job.yaml", "--output", tmp_path / "page.md", *given.options)
    assert (described.code, described.err) == (planned.code, planned.err)
    assert (tmp_path / "page.md").exists() == (planned.code == 0)


def test_a_page_cannot_stand_in_a_release_or_replace_a_folder(here: Shop, call: Call) -> None:
    here.write()
    (here.folder / "out").mkdir()
    (here.folder / "out" / "manifest.json").write_text("{}")
    said = call("describe", "job.yaml", "--output", "out/page.html")
    assert said.code == 2
    assert "inside a published folder" in said.err
    said = call("describe", "job.yaml", "--output", "data")
    assert said.code == 2
    assert "is a folder" in said.err
    assert call("describe", "job.yaml", "--output", "nowhere/page.html").code == 1


def test_no_file_is_replaced_but_a_page_that_nobody_has_written_in(here: Shop, call: Call) -> None:
    """A slip of the pen would cost a job file, rows, what a ledger remembers, or a day's answers."""
    here.write()
    assert call("run", "job.yaml", "--output", "out", "--runner", "local").code == 0
    pathlib.Path("other.md").write_text("# Notes\n")
    pathlib.Path("release").mkdir()
    shutil.copytree("out", "release/kept")
    pathlib.Path("release/manifest.json").write_text("{}")
    kept = ("job.yaml", DEFAULT_NAME, "data/part-0.parquet", "other.md", "out/weekly.parquet")
    before = {name: pathlib.Path(name).read_bytes() for name in kept}
    for command in (("describe", "job.yaml"), ("report", "out")):
        for name in (*kept, "/dev/null", "release/kept/page.html"):
            said = call(*command, "--output", name)
            assert said.code == 2, name
            assert name in said.err
    assert {name: pathlib.Path(name).read_bytes() for name in kept} == before
    for name in ("page.md", "page.html"):
        for _ in range(2):
            assert call("describe", "job.yaml", "--output", name).code == 0
    page = pathlib.Path("page.md")
    answered = page.read_text().replace("Who is responsible, and who operates the job?", "The shop.")
    page.write_text(answered)
    said = call("describe", "job.yaml", "--output", "page.md")
    assert said.code == 2
    assert "in which somebody has written, and is not replaced; name another file" in said.err
    assert page.read_text() == answered
    pathlib.Path("page.html").write_bytes(b"")  # nothing is lost
    assert call("describe", "job.yaml", "--output", "page.html").code == 0


@pytest.mark.parametrize(
    ("split", "noise"), [("linear", "0.25 times"), ("linear_decreasing", "4 times"), ("constant", "")]
)
def test_noise_that_differs_from_round_to_round_or_run_to_run_is_told_of_the_first_and_the_last(
    split: str, noise: str, here: Shop, call: Call
) -> None:
    fit = {"rounds": 5, "schedule": split}
    model = {**TRAIN, "kind": "federate", "fit": fit, "expected_clients": 2000}
    here.write(columns={"dear": "price > 10"}, stages={"model": model})
    plan = json.loads(call("plan", "job.yaml", "--json").out)
    (by_round,) = [stage["noise_by_round"] for stage in plan["stages"] if "noise_by_round" in stage]
    assert call("describe", "job.yaml", "--output", "rounds.md").code == 0
    page = pathlib.Path("rounds.md").read_text()
    (told,) = re.findall(
        r"\| gaussian \| ([\d.,]+) times the most that one unit can add(.*) \|\n\| model.evaluation", page
    )
    assert float(told[0].replace(",", "")) == pytest.approx(by_round[0], rel=1e-3)
    last = re.findall(r", in the first; ([\d.,]+) times in the last", told[1])
    assert [float(each.replace(",", "")) for each in last] == pytest.approx([by_round[-1]] * bool(noise), rel=1e-3)
    here.write(budget={"epsilon": 1.0, "delta": 1e-5, "runs": 4, "split": split})
    assert call("describe", "job.yaml", "--output", "runs.md").code == 0
    page = pathlib.Path("runs.md").read_text()
    found = re.findall(r"the noise of the first run.*the last run has (.*) as much", page)
    assert found == ([noise] if noise else [])


def test_a_job_that_no_budget_can_pay_is_refused_with_three(here: Shop, call: Call) -> None:
    here.write(
        budget={"epsilon": 0.001, "delta": 1e-5},
        stages={"weekly": stage(metrics={"orders": {"kind": "count", "stddev": 1}})},
    )
    assert call("plan", "job.yaml").code == call("describe", "job.yaml").code == 3
    assert not pathlib.Path("assessment.html").exists()


def test_names_that_look_like_marks_change_no_page(here: Shop, call: Call) -> None:
    plain, odd = "n", "<script>alert(1)</script>|*`x`[y](z)"
    shapes = []
    for name in (plain, odd):
        rows = purchases(0).append_column(name, pa.array([1.0] * purchases(0).num_rows))
        pa.parquet.write_table(rows, here.folder / "data" / "part-0.parquet")
        metrics = {"m": {"kind": "sum", "column": name, "min_value": 0, "max_value": 1}}
        here.write(stages={"weekly": stage(metrics=metrics)}, source={"parquet": "data/part-0.parquet"})
        for output in ("page.html", "page.md"):
            said = call("describe", "job.yaml", "--output", output)
            assert said.code == 0, said.err
        html = Page(pathlib.Path("page.html").read_text())
        shapes.append((html.shape, len(pathlib.Path("page.md").read_text().splitlines())))
        assert headings(pathlib.Path("page.md").read_text()) == HEADINGS
    assert shapes[0] == shapes[1]
    # The plan stands there as it is printed, in lines that Markdown takes for code.
    marked = [line for line in pathlib.Path("page.md").read_text().splitlines() if "<script>" in line]
    assert all(line.startswith("    ") for line in marked)
