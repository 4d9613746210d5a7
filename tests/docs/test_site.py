"""The site: Sphinx makes it without a warning, every page can be reached, and a browser shows it without asking for anything.

In: docs/ and the code. Out: pages in a temporary folder. Holds: a link to nowhere between our pages, a page outside every list, a
command without its help and a broken docstring each fail. Not covered: links to other sites; how it looks.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

from dp_pipelines.jobs.cli import main
from tests.docs.run_blocks import run
from tests.helpers.source import ROOT
from tests.report.test_report_in_a_browser import CHROMIUM, Browser

needs_sphinx = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("sphinx", "myst_parser", "furo")),
    reason="needs the extra `docs`: pip install 'dp-pipelines[docs]'",
)


def build(source: pathlib.Path, out: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Make the site as `make docs` does."""
    return run([sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html", str(source), str(out)], ROOT)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The site, made once."""
    out = tmp_path_factory.mktemp("site")
    done = build(ROOT / "docs", out)
    assert done.returncode == 0, done.stderr[-3000:]
    return out


@needs_sphinx
@pytest.mark.slow
def test_the_site_is_made_without_a_warning_and_has_every_page(site: pathlib.Path) -> None:
    pages = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert {page.relative_to(site) for page in site.rglob("*.html")} >= pages


@needs_sphinx
@pytest.mark.slow
def test_a_link_to_nowhere_is_found(tmp_path: pathlib.Path) -> None:
    for name in ("conf.py", "job_file_keys.py"):
        (tmp_path / name).write_text((ROOT / "docs" / name).read_text())
    (tmp_path / "index.md").write_text("# A page\n\n[nowhere](nothing.md)\n")
    done = build(tmp_path, tmp_path / "out")
    assert done.returncode == 1
    assert "nothing.md" in done.stderr


@needs_sphinx
@pytest.mark.slow
def test_the_reference_has_the_help_of_every_command_and_every_public_name(site: pathlib.Path) -> None:
    import dp_pipelines

    text = (site / "reference" / "commands.html").read_text()
    choices = next(action.choices for action in main.parser()._actions if action.dest == "command")
    assert choices
    assert [name for name in choices if f"usage: dp-pipelines {name}" not in text] == []
    api = (site / "reference" / "api.html").read_text()
    public = [name for name in dp_pipelines.__all__ if isinstance(getattr(dp_pipelines, name), type)]
    assert public
    assert [name for name in public if f'id="dp_pipelines.{name}"' not in api] == []
    keys = (site / "reference" / "job_file.html").read_text()
    assert [name for name in ("bounds-max-contributions", "sum-column") if f'id="{name}"' not in keys] == []


@needs_sphinx
@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs the program `chromium`, which is not installed")
def test_a_browser_shows_the_pages_without_a_message_and_asks_nobody_for_anything(
    site: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for name in ("index.html", "tutorial.html", "reference/api.html"):
        # The page as it lies there, with its own styles and scripts beside it.
        text = (site / name).read_text()
        based = text.replace("<head>", f'<head><base href="{(site / name).parent.as_uri()}/">', 1)
        seen = Browser(tmp_path).run(based, "--dump-dom", "--allow-file-access-from-files")
        assert seen.messages == []
        assert [asked for asked in seen.requests if not asked.startswith("file:")] == []
        assert re.search(r"<h1>.{3,}", seen.dom)
