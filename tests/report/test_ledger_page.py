"""The page of a ledger: complete, its own evidence, and nothing in it can break it."""

import dataclasses
import json
import pathlib
import re
import subprocess
import sys
from fractions import Fraction
from typing import Any

import pytest

from dp_pipelines.ledger import events, export
from dp_pipelines.ledger.entries import EngineJob, Window
from dp_pipelines.ledger.ledger import Ledger
from dp_pipelines.report.ledger_page import CHECK, render
from tests.helpers import ledgers
from tests.helpers.extension_folders import needs
from tests.helpers.work import calls_of
from tests.report.page import Page, barriers
from tests.report.test_report import SHAPES, UGLY
from tests.report.test_report_in_a_browser import CHROMIUM, DARK, LIGHT, Browser, with_script

pytestmark = needs("local_dp")
"""The ledger whose page is made has an account of answers too."""

in_a_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs the program `chromium`, which is not installed")


def filled(folder: pathlib.Path, name: str = ledgers.ACCOUNT, who: str = "") -> dict[str, Any]:
    """What is exported of a ledger with accounts under both rules, a window, and runs in several states."""
    book = Ledger.create(
        str(folder / "ledger.sqlite"), anchor=str(folder / "anchor"), clock=lambda: "2026-01-05T00:00:00"
    )
    ledgers.open_account(book, name, patterns=["/data/*.csv"])
    ledgers.open_account(book, "moving", rule="filter", epsilon=4.0)
    ledgers.open_account(book, "weekly", window=Window(column="day", days=7, origin="2026-01-05"))
    for number in range(2):
        ledgers.finish(book, ledgers.admit(book, f"run {number}{who}", ledgers.plan(0.3, 1e-7, 3), account=name))
    stopped, attempt = ledgers.start(book, ledgers.admit(book, "stopped", ledgers.plan(0.3, 1e-7, 3), account=name))
    job = EngineJob(name=f"dp-{who}", runner="flink")
    stopped = book.submitted(stopped, attempt=attempt, job=job)
    book.abandon(book.end(stopped, attempt=attempt, how="the disk was full", destroyed=True))
    ledgers.finish(book, ledgers.admit(book, "first", account="moving"))
    book.abandon(ledgers.admit(book, "undone", account="moving", asked="another"))
    ledgers.admit(book, "2026-W02", account="weekly", window="2026-01-05")
    book.raise_cap("weekly", epsilon=2.0, delta=1e-6)
    book.note_tuning(name, stage=f"s{who}", configurations=12, content="c", grid="g", who=who)
    from dp_pipelines.extensions.local_dp import answers_ledger
    from dp_pipelines.extensions.local_dp.answers import AnswerLimits, AskedQuestion, Asking

    limits = AnswerLimits(epsilon=3.0, questions=2, question_epsilon=2.0)
    answers_ledger.open_account(book, f"answers{who}", kind="local", limits=limits, patterns=["/reports/*.csv"])
    answers_ledger.raise_limits(book, f"answers{who}", dataclasses.replace(limits, epsilon=4.0))
    age = AskedQuestion(name=f"age{who}", document="7d1f", mechanism="unary", epsilon="1.5")
    asked = {"askings": [Asking(questions=(age,))], "asked": "x", "content": "c", "params": {}}
    ledgers.finish(book, answers_ledger.admit_estimate(book, f"answers{who}", "monday", who="ann@host", **asked))
    found = export.to_json(book)
    book.close()
    return found


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return filled(tmp_path_factory.mktemp("ledger"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of a ledger whose names are plain words."""
    return render(filled(tmp_path_factory.mktemp("plain"), "plain", "plain"))


@pytest.fixture(scope="module")
def whole(content: dict[str, Any]) -> str:
    return render(content)


def checked(folder: pathlib.Path, html: str) -> subprocess.CompletedProcess[str]:
    """What the program that stands in the page says of a saved page."""
    program = re.search(r'<pre class="program[^>]*>(.*?)</pre>', html, re.DOTALL)
    assert program is not None
    (folder / "check.py").write_text(Page(program[0]).texts[0][1], encoding="utf-8")
    (folder / "ledger.html").write_text(html, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-I", "check.py", "ledger.html"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_program_in_the_page_verifies_the_page(tmp_path: pathlib.Path, content: dict[str, Any], whole: str) -> None:
    done = checked(tmp_path, whole)
    assert done.stdout.split() == [str(content["head"]["seq"]), content["head"]["hash"]]
    assert CHECK in "".join(Page(whole).inside("pre"))
    assert len(CHECK.splitlines()) <= 10
    assert all(module in sys.stdlib_module_names for module in re.findall(r"\w+", CHECK.splitlines()[0])[1:])


@pytest.mark.parametrize("change", ["another plan", "another time", "one removed", "two exchanged"])
def test_the_program_in_the_page_finds_what_was_changed(tmp_path: pathlib.Path, whole: str, change: str) -> None:
    lines = re.findall(r'<pre class="event">.*?</pre>', whole)
    page = {
        "another plan": whole.replace(r"\&#34;runs\&#34;:3", r"\&#34;runs\&#34;:2", 1),
        "another time": whole.replace(lines[4], lines[4].replace("2026-01-05T00", "2026-01-04T00")),
        "one removed": whole.replace(lines[4], ""),
        "two exchanged": whole.replace(lines[4], "@@").replace(lines[5], lines[4]).replace("@@", lines[5]),
    }[change]
    assert page != whole
    done = checked(tmp_path, page)
    assert done.returncode == 1
    assert "does not follow" in done.stderr


@pytest.mark.parametrize("part", ["seq", "previous", "kind", "time", "body", "hash"])
def test_a_chain_that_does_not_fit_is_said_at_the_top_of_the_page(content: dict[str, Any], part: str) -> None:
    chain = [dict(event) for event in content["events"]]
    chain[3][part] = "x"
    assert "The chain breaks at event 4." in Page(render({**content, "events": chain})).words
    assert "breaks at event" not in Page(render(content)).words.replace(CHECK, "")


def test_a_head_that_is_not_that_of_the_events_is_said(content: dict[str, Any]) -> None:
    assert "breaks at the head" in Page(render({**content, "events": content["events"][:-1]})).words


def test_an_auditor_reads_who_spent_what_on_which_plan(content: dict[str, Any], whole: str) -> None:
    words = Page(whole).words
    plan = ledgers.plan(0.3, 1e-7, 3)
    for part in (
        content["ledger"], content["head"]["hash"], "each customer", "ann@host", plan.digest, "a plan for 3 runs",
        "the disk was full", "given up; its budget is free again", "released and published", "2 of 3",
        "of 7 days by day , from 2026-01-05", "/data/*.csv", "run undone, given up: given back", "week = run 1",
        "one person's report changed", "age (unary, local epsilon 1.5), answers: 1", "kind local; epsilon 3 of a person",
    ):  # fmt: skip
        assert part in words, part


def test_the_page_names_the_job_and_the_numbers_of_each_run_in_the_order_of_the_job(tmp_path: pathlib.Path) -> None:
    book = Ledger.create(str(tmp_path / "ledger.sqlite"), anchor=str(tmp_path / "anchor"))
    ledgers.open_account(book)
    made, stages = ledgers.plan(), {"weekly": ["orders", "revenue"], "model": []}
    book.admit(
        ledgers.ACCOUNT, "first", plan=made, asked="a", content="c", params={}, who="ann@host", job="shop.yaml",
        stages=stages, records=lambda number: made.round(number).mechanisms,
    )  # fmt: skip
    page = Page(render(export.to_json(book)))
    book.close()
    rows = page.inside("tr", "td", "bdi")
    assert "shop.yaml" in rows
    assert "weekly: orders, revenue; model" in rows
    assert "a plan for 1 run (weekly: orders, revenue; model)" in rows


def test_the_charges_add_up_to_what_is_spent(content: dict[str, Any], whole: str) -> None:
    rows = re.findall(r"<tr><th scope=\"row\" class=\"n\">\d+</th>.*?</tr>", whole.split('id="runs"')[0], re.DOTALL)
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    spent = sum(Fraction(row[4]) for row in cells if ledgers.ACCOUNT in row[2])
    assert float(spent) == content["accounts"][0]["budgets"][""]["spent"]["epsilon"]
    moving = [row[4].split()[0] for row in cells if "moving" in row[2]]
    assert len(moving) == 3
    assert Fraction(moving[1]) == -Fraction(moving[2])  # the run that was given up


def test_the_page_has_no_barriers(whole: str) -> None:
    assert barriers(whole) == []


def test_bars_are_as_long_as_their_words_say(content: dict[str, Any], whole: str) -> None:
    budget = content["accounts"][0]["budgets"][""]
    share = 100 * budget["spent"]["epsilon"] / budget["cap"]["epsilon"]
    widths = [a["style"] for _, a in Page(whole).elements if (a.get("style") or "").startswith("width")]
    assert widths[0] == f"width: {share:.2f}%"
    assert len(widths) == 2 * 3 + 1  # devices promise no delta


def test_every_event_is_in_the_page(content: dict[str, Any], whole: str) -> None:
    lines = [json.loads(line) for line in Page(whole).inside("details", "pre")]
    shown = [(line[1], line[3], line[5]) for line in lines]
    assert shown == [(event["seq"], event["kind"], event["body"]) for event in content["events"]]
    kinds = {"attempt ended", "run abandoned", "cap raised", *(kind.replace("_", " ") for kind in events.KINDS)}
    assert kinds - {"source registered", "draw frozen"} <= set(Page(whole).inside("tr", "td"))


def test_its_elements_are_balanced_named_once_and_tables_have_words(whole: str) -> None:
    read = Page(whole)
    assert not read.unbalanced
    assert not read.open
    assert len(read.ids) == len(set(read.ids)) > 5
    assert all("scope" in attributes for tag, attributes in read.elements if tag == "th")
    tables = [tag for tag, _ in read.elements if tag in ("table", "caption")]
    assert tables == ["table", "caption"] * 5


def test_the_same_ledger_gives_the_same_page_in_another_process(
    tmp_path: pathlib.Path, content: dict[str, Any], whole: str
) -> None:
    (tmp_path / "ledger.json").write_text(json.dumps(content))
    code = (
        "import json, pathlib, sys; from dp_pipelines.report.ledger_page import render\n"
        "sys.stdout.reconfigure(encoding='utf-8', newline='\\n')\n"
        f"sys.stdout.write(render(json.loads(pathlib.Path({str(tmp_path / 'ledger.json')!r}).read_text())))\n"
        "assert 'matplotlib' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode() == whole


def test_nothing_in_the_page_can_be_fetched(whole: str) -> None:
    read = Page(whole)
    assert not SHAPES.findall(whole)
    assert not [a for _, a in read.elements if {"src", "xlink:href", "action", "data", "poster"} & set(a)]
    assert all((a.get("href") or "#").startswith("#") for _, a in read.elements)
    (policy,) = [a["content"] for _, a in read.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert (policy or "").startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


@pytest.mark.parametrize("ugly", [text for text in UGLY if len(text) < 1000], ids=range(len(UGLY) - 1))
def test_no_text_of_a_ledger_changes_an_element_of_the_page(
    tmp_path: pathlib.Path, plain: str, ugly: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Version 0.1.0 took any text for a name, which a ledger may hold since then.
    monkeypatch.setattr("dp_pipelines.ledger.ledger.checks.plain", lambda value, field: value)
    found = render(filled(tmp_path, ugly, ugly))
    assert Page(found).shape == Page(plain).shape
    assert checked(tmp_path, found).returncode == 0


STRANGE = [3, "x", None, [3], [{}], {"x": 3}, [{"body": "[", "kind": 3, "seq": "x", "cost": {"epsilon": "x"}}]]


@pytest.mark.parametrize("strange", STRANGE, ids=range(len(STRANGE)))
def test_an_export_with_anything_missing_or_strange_gives_a_page(content: dict[str, Any], strange: Any) -> None:
    assert not Page(render(dict.fromkeys(content, strange))).unbalanced
    for name in content:
        assert not Page(render({**content, name: strange})).unbalanced
        assert not Page(render({key: value for key, value in content.items() if key != name})).unbalanced


def test_an_empty_ledger_says_so(tmp_path: pathlib.Path) -> None:
    words = Page(render(export.to_json(Ledger.create(str(tmp_path / "l.sqlite"), anchor=str(tmp_path / "a"))))).words
    for part in ("No account has been opened.", "Nothing has been charged.", "There are no runs.", "All 1 events"):
        assert part in words


def long(count: int) -> dict[str, Any]:
    """An export of many events, five for each run."""
    last = events.chained(None, events.LEDGER_CREATED, {"ledger": "l", "anchor": ""}, "2026-01-05")
    chain, runs = [last], []
    frozen = {"frozen": ["noise"] * 40, "plan": "ab" * 32, "runs": 9, "cost": {"epsilon": "9", "delta": "9"}}
    while len(chain) < count:
        run = f"run {len(runs)}"
        for kind in (events.PLAN_FROZEN, events.RUN_RESERVED, events.ATTEMPT_STARTED, events.RUN_STAGED):
            body = {"account": "grocery", "run_id": run, "window": "", "asked": run, "who": "ann@host", **frozen}
            last = events.chained(last, kind, body, "2026-01-05T00:00:00")
            chain.append(last)
        runs.append({"account": "grocery", "run_id": run, "state": "staged", "times": {}, "plan": "ab" * 32})
    return {
        "ledger": "l",
        "head": {"seq": last.seq, "hash": last.hash},
        "accounts": [],
        "runs": runs,
        "events": [vars(event) for event in chain],
    }


def test_each_of_many_events_takes_as_much_work_as_each_of_few() -> None:
    render(long(10))
    few, many = (calls_of(lambda content=long(count): render(content)) / count for count in (500, 4_000))  # type: ignore[misc]
    assert few < 1_000
    assert many < 1.1 * few


def test_a_page_of_ten_thousand_events_has_them_all_and_is_no_giant() -> None:
    html = render(long(10_000))
    assert html.count('<pre class="event">') >= 10_000
    assert len(html) < 30_000_000


@in_a_browser
def test_it_opens_in_a_browser_without_a_message_and_asks_for_nothing(browser: Browser, whole: str) -> None:
    seen = browser.run(whole, "--dump-dom")
    assert seen.messages == []
    assert seen.requests == []
    assert seen.dom.count('class="sort"') == 8 + 13 + 8


@in_a_browser
def test_it_follows_the_scheme_of_the_reader_and_prints(browser: Browser, whole: str) -> None:
    assert browser.screenshot(whole, LIGHT)[5, 5].min() > 0.9
    assert browser.screenshot(whole, DARK)[5, 5].max() < 0.2
    file = browser.folder / "printed.pdf"
    browser.run(whole, f"--print-to-pdf={file}", "--no-pdf-header-footer")
    assert file.read_bytes().startswith(b"%PDF")


@in_a_browser
def test_on_a_phone_nothing_runs_out_of_the_page(browser: Browser, tmp_path: pathlib.Path) -> None:
    html = render(filled(tmp_path, "x" * 300, "y" * 300))
    measure = "document.title = `width ${document.documentElement.scrollWidth} of ${innerWidth}`"
    width = re.search(
        r"<title>width (\d+) of (\d+)",
        browser.run(with_script(html, measure), "--dump-dom", "--window-size=500,900").dom,
    )
    assert width is not None
    assert int(width[1]) <= int(width[2]) <= 500


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("browser"))
