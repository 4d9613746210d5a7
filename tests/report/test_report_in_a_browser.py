"""The report in a real browser: headless Chromium shows it in light and dark, prints it, and is asked for nothing else.

In: a page on disk. Out: its DOM, screenshots, a PDF, the browser's log of messages and of requests. Holds: each check finds a
planted fault. Not covered: other browsers. Skipped where no Chromium is installed (Debian: `apt-get install chromium`).
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
from html import escape, unescape
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pytest

from tests.report.page import (
    KEPT,
    groceries,
    listed,
    manifest,
    metric,
    page,
    ranged,
    ranged_manifest,
    spread_groceries,
    spread_manifest,
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs the program `chromium`, which is not installed")

LIGHT, DARK = 1, 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What Chromium made of a page."""

    dom: str
    messages: list[str]
    requests: list[str]


class Browser:
    """Headless Chromium with a profile of its own, for one page at a time."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def run(self, html: str, *options: str) -> Seen:
        """Open a page and do what the options say."""
        file, log = self.folder / "report.html", self.folder / "net.json"
        file.write_text(html, encoding="utf-8")
        log.unlink(missing_ok=True)
        quiet = [
            "--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
            "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
            "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", f"--log-net-log={log}",
            f"--user-data-dir={self.folder / 'profile'}", *(["--no-sandbox"] if os.geteuid() == 0 else []),
        ]  # fmt: skip
        done = subprocess.run(
            [str(CHROMIUM), *quiet, *options, file.as_uri()], capture_output=True, text=True, timeout=120, check=True
        )
        messages = re.findall(r"CONSOLE.*?\] \"(.*)\", source", done.stderr)
        return Seen(dom=done.stdout, messages=messages, requests=requests(log))

    def screenshot(self, html: str, scheme: int) -> np.ndarray:
        """What a page looks like, as red, green and blue from 0 to 1."""
        from matplotlib.image import imread

        file = self.folder / "seen.png"
        self.run(
            html, f"--screenshot={file}", "--window-size=900,1400", f"--blink-settings=preferredColorScheme={scheme}"
        )
        return np.asarray(imread(file))[:, :, :3]


def requests(log: pathlib.Path) -> list[str]:
    """The addresses that the page asked the network for (the browser's own errands go to its makers)."""
    events = json.loads(log.read_text())["events"]
    urls = {event["params"]["url"] for event in events if "url" in event.get("params", {})}
    return sorted(url for url in urls if url.startswith(("http:", "https:", "ws:")) and ".google" not in url)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("browser"))


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(tmp_path_factory.mktemp("page"), groceries())


@pytest.fixture(scope="module")
def seen(browser: Browser, html: str) -> Seen:
    return browser.run(html, "--dump-dom")


def with_script(html: str, script: str) -> str:
    """The page without its policy, and with a script at its end."""
    before, end, after = re.sub(r"<meta http-equiv.*?>", "", html).rpartition("</body>")
    return f"{before}<script>{script}</script>{end}{after}"


def test_it_opens_without_a_message_and_asks_for_nothing(seen: Seen) -> None:
    assert "grocery" in seen.dom
    assert seen.messages == []
    assert seen.requests == []


def test_a_message_and_a_request_would_be_seen(browser: Browser, html: str) -> None:
    planted = with_script(html, 'console.error("planted"); fetch("http://planted.invalid/x")')
    found = browser.run(planted, "--dump-dom", "--virtual-time-budget=2000")
    assert "planted" in found.messages[0]
    assert found.requests == ["http://planted.invalid/x"]


def test_its_policy_stops_what_might_get_in(browser: Browser, html: str) -> None:
    planted = html.replace(
        "</body>", '<img src="http://planted.invalid/x"><script>document.title = "ran"</script></body>'
    )
    found = browser.run(planted, "--dump-dom", "--virtual-time-budget=2000")
    assert found.requests == []
    assert "<title>ran" not in found.dom
    assert len(found.messages) >= 2  # it says that it refused both


def test_its_script_makes_the_table_sortable_and_searchable(seen: Seen) -> None:
    assert seen.dom.count('<button type="button" class="sort">') == 5
    assert seen.dom.count('<input type="search"') == 1


def test_sorting_orders_numbers_as_numbers(browser: Browser, tmp_path: pathlib.Path) -> None:
    table = page(tmp_path, {"k": list("abcd"), **metric("n", [900.0, 10_000.0, None, -5.0], 1.0)}, {})
    sort = 'document.querySelectorAll(".sort")[1].click();'
    read = 'document.title = [...document.querySelectorAll("tbody tr th")].map(x => x.textContent).join("")'
    assert "<title>badc" in browser.run(with_script(table, sort + read), "--dump-dom").dom
    assert "<title>dabc" in browser.run(with_script(table, sort + sort + read), "--dump-dom").dom


TOOLS = """
const found = {}, table = document.querySelector("table[data-sortable]");
const shown = () => [...table.tBodies[0].rows].filter(row => !row.hidden).length;
const [city, find] = [document.querySelector("select.find"), document.querySelector("input.find")];
city.value = "=a, b"; city.dispatchEvent(new Event("change")); found.ofCity = shown();
city.value = ""; city.dispatchEvent(new Event("change"));
find.value = "2026-W03"; find.dispatchEvent(new Event("input")); found.ofWeek = shown();
HTMLAnchorElement.prototype.click = function () {
  found.csv = decodeURIComponent(this.href.split(",").slice(1).join(",")); found.file = this.download;
};
[...document.querySelectorAll("button.tool")].find(button => button.textContent === "Download CSV").click();
const frame = [...document.querySelectorAll("figure .panels")].at(-1);
const readout = frame.closest("figure").querySelector(".readout");
const key = name => frame.dispatchEvent(new KeyboardEvent("keydown", {key: name, bubbles: true}));
frame.focus(); found.focused = document.activeElement === frame;
key("ArrowRight"); key("ArrowRight"); found.second = readout.textContent;
key("End"); found.last = readout.textContent;
document.title = JSON.stringify(found);
"""
"""Uses what the script adds to a page, as a reader would."""


def test_tables_are_sifted_and_saved_and_the_keys_read_the_points(browser: Browser, tmp_path: pathlib.Path) -> None:
    weeks = [f"2026-W{week:02d}" for week in range(1, 7)]
    columns = {"city": ["=x"] * 6 + ["a, b"] * 6, "week": weeks * 2, **metric("orders", range(1000, 1012), 100.0)}
    html = page(tmp_path, columns, {"stages": [{"name": "weekly", "metrics": {"orders": {"kind": "count"}}}]})
    seen = browser.run(with_script(html, TOOLS), "--dump-dom")
    said = re.search(r"<title>(.*?)</title>", seen.dom)
    assert said is not None
    found = json.loads(unescape(said[1]))
    assert (found["ofCity"], found["ofWeek"]) == (6, 2)
    rows = found["csv"].removeprefix("\ufeff").splitlines()
    assert rows[0] == "city,week,orders,orders ±"
    # A spreadsheet computes no key, and numbers have no separators.
    assert sorted(rows[1:]) == ['"a, b",2026-W03,1008,196', "'=x,2026-W03,1002,196"]
    assert found["file"] == "weekly.csv"
    assert found["focused"]
    assert found["second"] == "a, b, 2026-W02: 1,007 ± 196"
    assert found["last"] == "=x, 2026-W06: 1,005 ± 196"


def test_a_csv_has_both_ends_of_the_interval_of_a_computed_number(browser: Browser, tmp_path: pathlib.Path) -> None:
    computed = {"basket": [10.0, None], "basket_noise_low": [9.5, None], "basket_noise_high": [10.6, None]}
    columns = {"city": ["a", "b"], **metric("orders", [1000.0, 5.0], 100.0), **computed}
    described = {
        "name": "weekly",
        "partition_by": ["city"],
        "metrics": {"orders": {"kind": "count"}},
        "derived": {"basket": {"formula": "2 * orders"}},
    }
    read = """HTMLAnchorElement.prototype.click = function () { document.title = this.href };
    [...document.querySelectorAll("button.tool")].find(button => button.textContent === "Download CSV").click();"""
    html = page(tmp_path, columns, {"stages": [described]})
    said = re.search(r"<title>data:[^,]*,(.*?)</title>", browser.run(with_script(html, read), "--dump-dom").dom)
    assert said is not None
    head, *rows = unquote(said[1]).removeprefix("\ufeff").splitlines()
    assert head == "city,orders,orders ±,basket,basket noise low,basket noise high"
    assert sorted(rows) == ["a,1000,196,10.0,9.5,10.6", "b,5,196,,,"]


def test_a_list_in_a_csv_is_no_formula(browser: Browser, tmp_path: pathlib.Path) -> None:
    values, stddevs = listed([[5.0, 900.0]], [[1.0, 2.0]])
    content = spread_manifest(payment={"kind": "histogram", "categories": ["=1+1", "card"]})
    html = page(tmp_path, {"product": ["a"], "payment": values, "payment_stddev": stddevs}, content)
    read = """HTMLAnchorElement.prototype.click = function () { document.title = this.href };
    [...document.querySelectorAll("button.tool")].find(button => button.textContent === "Download CSV").click();"""
    said = re.search(r"<title>data:[^,]*,(.*?)</title>", browser.run(with_script(html, read), "--dump-dom").dom)
    assert said is not None
    assert unquote(said[1]).removeprefix("\ufeff").splitlines() == [
        "product,payment",
        "a,'=1+1 5.0 ± 2.0; card 900.0 ± 3.9",
    ]


SWITCH = """
const found = {}, card = document.querySelector("section[data-ranges]");
const cell = () => card.querySelector("tbody td.n").innerText.trim();
const drawn = kind => [...card.querySelectorAll("svg ." + kind)].filter(mark => mark.checkVisibility()).length;
HTMLAnchorElement.prototype.click = function () {
  found.csv = decodeURIComponent(this.href.split(",").slice(1).join(",")).trim().split("\\r\\n").slice(0, 2);
};
const save = () => [...card.querySelectorAll("button.tool")].find(button => button.textContent === "Download CSV").click();
const read = () => { save(); return [cell(), drawn("counted") > 0, drawn("estimate") > 0, ...found.csv]; };
found.first = read();
const [counted, estimates] = card.querySelectorAll(".switch button");
estimates.click(); found.then = read(); found.pressed = [counted, estimates].map(one => one.getAttribute("aria-pressed"));
const frame = card.querySelector("figure .single");
frame.dispatchEvent(new KeyboardEvent("keydown", {key: "Home"})); found.point = card.querySelector(".readout").textContent;
counted.click(); found.last = read();
document.title = JSON.stringify(found);
"""
"""Looks at the estimates of a page and back, as a reader would."""


def test_a_switch_shows_counted_numbers_or_estimates(browser: Browser, tmp_path: pathlib.Path) -> None:
    weeks = {"week": ["2026-W01", "2026-W02"], **metric("orders", [880.0, 1760.0], 10.0)}
    html = page(tmp_path, ranged(weeks), ranged_manifest())
    said = re.search(r"<title>(.*?)</title>", browser.run(with_script(html, SWITCH), "--dump-dom").dom)
    assert said is not None
    found = json.loads(unescape(said[1]))
    counted = ["880 ± 20", True, False, "week,orders,orders ±,orders likely low,orders likely high",
               "2026-W01,880,20,860,1240"]  # fmt: skip
    assert found["first"] == found["last"] == counted
    assert found["then"] == [
        "1,000",
        False,
        True,
        counted[3].replace("orders,", "orders estimate,"),
        "2026-W01,1000,,860,1240",
    ]
    assert found["pressed"] == ["false", "true"]
    assert found["point"] == "2026-W01: about 1,000, likely 860 … 1,240"


def test_it_follows_the_scheme_of_the_reader(browser: Browser, html: str) -> None:
    light, dark = browser.screenshot(html, LIGHT), browser.screenshot(html, DARK)
    assert light[5, 5].min() > 0.9
    assert dark[5, 5].max() < 0.2
    for shown in (light, dark):  # text and plots stand out from what is behind them
        assert 0.02 < (np.abs(shown - shown[5, 5]).max(axis=2) > 0.3).mean() < 0.5


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_it_prints(browser: Browser, html: str, scheme: int) -> None:
    file = browser.folder / "printed.pdf"
    browser.run(
        html, f"--print-to-pdf={file}", "--no-pdf-header-footer", f"--blink-settings=preferredColorScheme={scheme}"
    )
    assert file.read_bytes().startswith(b"%PDF")
    assert file.stat().st_size > 50_000


@pytest.mark.parametrize("measured", [False, True], ids=["counted", "kept measured"])
@pytest.mark.parametrize(("weeks", "products"), [(12, 4), (4, 12), (6, 8), (2, 24), (48, 1)])
def test_a_page_of_48_rows_takes_at_most_four_sheets(
    browser: Browser, tmp_path: pathlib.Path, weeks: int, products: int, measured: bool
) -> None:
    file = browser.folder / "sheets.pdf"
    content = ranged_manifest() if measured else manifest()
    kept = {"kept": KEPT} if measured else {}
    entries = {"orders": {"kind": "count", **kept}, "revenue": {"kind": "sum", **kept}}
    content["stages"][0] |= {"metrics": entries, "limits": ["at most 4 rows of one CUSTOMER_ID are counted"] * 3}
    table = {name: column for name, column in groceries(weeks, products).items() if not name.startswith("mean")}
    if measured:
        table = ranged(ranged(table), "revenue")
    browser.run(page(tmp_path, table, content), f"--print-to-pdf={file}", "--no-pdf-header-footer")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", file.read_bytes())) <= 4


@pytest.mark.parametrize("key", ["x" * 5000, "漢" * 300, "عربي " * 50], ids=["long", "wide", "right to left"])
def test_on_a_phone_nothing_runs_out_of_the_page(browser: Browser, tmp_path: pathlib.Path, key: str) -> None:
    columns = {"product": [key, "b", "c"] * 2, "week": ["2026-W01"] * 3 + ["2026-W02"] * 3}
    columns |= metric("orders", range(100, 106)) | metric("y" * 60, range(1, 7))
    content = manifest(dataset=key, run_id=key, privacy_unit=key)
    measure = "document.title = `width ${document.documentElement.scrollWidth} of ${innerWidth}`"
    found = browser.run(with_script(page(tmp_path, columns, content), measure), "--dump-dom", "--window-size=500,900")
    width = re.search(r"<title>width (\d+) of (\d+)", found.dom)
    assert width is not None
    assert int(width[1]) <= int(width[2]) <= 500


LIST = """
const scroll = document.querySelector(".scroll"), hidden = scroll.scrollWidth - scroll.clientWidth;
const upper = cell => cell.getBoundingClientRect().top, cells = [...scroll.querySelectorAll("td")];
const beside = [...scroll.querySelectorAll("thead th")].every((head, at) => Math.abs(upper(head) - upper(cells[at])) < 1);
document.title = `hidden ${hidden}, beside ${beside}, sorted ${document.querySelectorAll(".sort").length}`;
"""
"""Measures whether each number of a table of one row stands beside its heading."""


def test_a_total_is_a_list_on_a_phone_and_has_nothing_to_sort(browser: Browser, tmp_path: pathlib.Path) -> None:
    names = [f"metric {at}" for at in range(6)]
    columns = {column: array for name in names for column, array in metric(name, [123456.0], 10.0).items()}
    html = with_script(page(tmp_path, columns, manifest(stages=[])), LIST)
    assert "<title>hidden 0, beside true, sorted 0" in browser.run(html, "--dump-dom", "--window-size=500,900").dom


def test_with_lists_it_opens_without_a_message_and_small_bars_are_not_sorted(
    browser: Browser, tmp_path: pathlib.Path
) -> None:
    html = page(tmp_path, spread_groceries(3, 3), spread_manifest())
    sort = 'document.querySelectorAll(".sort")[9].click();'  # the 90% quantile, after two keys and three numbers
    read = (
        'document.title = [...document.querySelectorAll(".data tbody tr")].map(x => parseFloat(x.cells[9].textContent));'
        "document.title += `; width ${document.documentElement.scrollWidth} of ${innerWidth}`"
    )
    found = browser.run(with_script(html, sort + read), "--dump-dom", "--window-size=500,900")
    assert found.messages == []
    assert found.dom.count('class="sort"') == 2 + 3 + 5 + 1
    said = re.search(r"<title>([^;]*); width (\d+) of (\d+)", found.dom)
    assert said is not None
    order = [float(text) for text in said[1].split(",")]
    assert order == sorted(order, reverse=True)
    assert len(order) == 9
    assert int(said[2]) <= int(said[3])


MEASURE = """
const found = {over: [], cut: 0, small: 0, texts: 0};
const page = document.querySelector("iframe").contentDocument, wide = page.documentElement.clientWidth;
for (const chart of page.querySelectorAll("svg.chart")) {
  const boxes = [...chart.querySelectorAll("text")].filter(text => text.getClientRects().length)
    .map(text => [text.getBoundingClientRect(), text]);
  found.texts += boxes.length;
  boxes.forEach(([a, one], at) => {
    if (!chart.closest(".scrolled") && (a.left < 0 || a.right > wide)) found.cut += 1;
    if (parseFloat(getComputedStyle(one).fontSize) < 12) found.small += 1;
    for (const [b, other] of boxes.slice(at + 1))
      if (a.left + 1 < b.right && b.left + 1 < a.right && a.top + 3 < b.bottom && b.top + 3 < a.bottom)
        found.over.push(one.textContent + " | " + other.textContent);
  });
}
found.sideways = page.documentElement.scrollWidth - wide;
document.title = JSON.stringify(found);
"""
"""Measures the texts of all plots in a page: which lie over another, which are cut at the edge, which are small."""


def measured(browser: Browser, html: str, width: int) -> dict[str, Any]:
    """What `MEASURE` finds on a screen of a width in pixels (the browser's own windows are no narrower than 500)."""
    inner = escape(re.sub(r"<meta http-equiv.*?>", "", html))
    frame = f'<iframe srcdoc="{inner}" style="border: 0; width: {width}px; height: 900px"></iframe>'
    script = f"document.querySelector('iframe').onload = () => {{ {MEASURE} }}"
    seen = browser.run(f"<body>{frame}<script>{script}</script></body>", "--dump-dom", "--virtual-time-budget=2000")
    said = re.search(r"<title>(.*?)</title>", seen.dom)
    assert said is not None
    return dict(json.loads(unescape(said[1])))


def hourly(rows: int = 96) -> dict[str, Any]:
    """A table with nothing but a time of day in a zone for its key."""
    hours = (np.datetime64("2026-03-01T00") + np.arange(rows)).astype("datetime64[us]")
    return {"hour": pa.array(hours, pa.timestamp("us", "UTC")), **metric("orders", 1000 + np.arange(rows) % 24)}


def noisy_quarters() -> dict[str, Any]:
    """Long names by quarters."""
    names = [f"{name} Airways Corporation" for name in ("Alpha", "Bravo", "Charlie", "Delta")]
    pairs = [(name, quarter) for name in names for quarter in ("Q1", "Q2", "Q3", "Q4")]
    numbers = [5000.0 * (at * 7 % 11) for at in range(len(pairs))]
    return {"carrier": [a for a, _ in pairs], "quarter": [b for _, b in pairs], **metric("flights", numbers, 9000.0)}


PAGES: dict[str, Any] = {
    "weeks": lambda: (groceries(), manifest()),
    "many weeks": lambda: (groceries(44, 14), manifest()),
    "hours": lambda: (hourly(), {}),
    "few hours": lambda: (hourly(7), {}),
    "quarters": lambda: (noisy_quarters(), {}),
    "lists": lambda: (spread_groceries(5, 4), spread_manifest()),
    "ranges": lambda: (ranged(groceries(6, 2)), ranged_manifest()),
}


@pytest.mark.parametrize("width", [375, 768, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_texts_of_plots_are_apart_whole_and_large_at_every_width(
    browser: Browser, tmp_path: pathlib.Path, name: str, width: int
) -> None:
    columns, content = PAGES[name]()
    found = measured(browser, page(tmp_path, columns, content), width)
    assert found.pop("texts") > 5
    assert found == {"over": [], "cut": 0, "small": 0, "sideways": 0}


def test_texts_that_lie_over_others_or_are_small_or_cut_are_found(browser: Browser, html: str) -> None:
    found = measured(browser, html.replace("font-size: 12px", "font-size: 60px"), 375)
    assert len(found["over"]) > 20
    assert found["cut"] > 5
    assert measured(browser, html.replace("font-size: 12px", "font-size: 8px"), 375)["small"] > 20


def test_plots_are_as_wide_as_the_page_lets_them(browser: Browser, tmp_path: pathlib.Path) -> None:
    html = page(tmp_path, hourly(), {})
    script = (
        "const card = document.querySelector('.card').clientWidth;"
        "document.title = 'shares ' + [...document.querySelectorAll('.plot')].map(p => p.clientWidth / card).join(' ')"
    )
    said = re.search(r"<title>shares ([\d. ]+)", browser.run(with_script(html, script), "--dump-dom").dom)
    assert said is not None
    assert min(map(float, said[1].split())) > 0.85
