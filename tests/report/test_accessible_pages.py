"""Each kind of page by the rules of axe-core for accessible pages, in Chromium, with everything unfolded.

In: pages of a release, of several runs and of a ledger. Out: the rules that they break. Holds: a planted faint text is found. Not
covered: what only a person can judge. Skipped where Chromium or axe-core is not installed.
"""

import json
import pathlib
import re
from html import unescape

import pytest

from dp_pipelines.report.ledger_page import render
from dp_pipelines.report.trends.trends_page import render_trends
from tests.report.page import metric, page, ranged, ranged_manifest, spread_groceries, spread_manifest
from tests.report.test_ledger_page import filled
from tests.report.test_report_in_a_browser import CHROMIUM, DARK, LIGHT, Browser, with_script
from tests.report.test_trends import orders, read, weekly

AXE = pathlib.Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"
"""The rules of axe-core, where somebody has installed them here."""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs the program `chromium`, which is not installed"),
    pytest.mark.skipif(not AXE.exists(), reason="needs axe-core: make node_modules/axe-core/axe.min.js"),
]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Browser:
    return Browser(tmp_path_factory.mktemp("browser"))


AXE_RUN = """
for (const button of document.querySelectorAll("button[aria-pressed=false]")) button.click();
for (const part of document.querySelectorAll("details")) part.open = true;
axe.run().then(found => { document.title = JSON.stringify(found.violations.map(one => one.id)); });
"""
"""Show the estimates where there is a switch, unfold everything, and name the rules that the page breaks."""


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_axe_finds_no_violation(browser: Browser, tmp_path: pathlib.Path, scheme: int) -> None:
    weeks = {"week": ["2026-W01", "2026-W02"], **metric("orders", [880.0, 1760.0], 10.0)}
    runs = weekly(tmp_path, [orders(100, 900), orders(120, 800)])
    pages = [
        page(tmp_path, spread_groceries(3, 3), spread_manifest()),
        page(tmp_path, ranged(weeks), ranged_manifest()),
        render_trends(read(*runs)),
        render(filled(tmp_path)),
    ]
    planted = pages[1].replace("</main>", "<p style='color: #999; background: #aaa'>faint</p></main>")
    for html, expected in (*((one, []) for one in pages), (planted, ["color-contrast"])):
        library = AXE.read_text(encoding="utf-8").replace("</script", r"<\/script")
        whole = with_script(html, f"{library}</script><script>{AXE_RUN}")
        seen = browser.run(
            whole, "--dump-dom", "--virtual-time-budget=20000", f"--blink-settings=preferredColorScheme={scheme}"
        )
        said = re.search(r"<title>(.*?)</title>", seen.dom)
        assert said is not None
        assert json.loads(unescape(said[1])) == expected
