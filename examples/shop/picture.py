"""The pictures of pages in docs/images: made-up rows, the jobs beside this file, screenshots by Chromium.

In: make_rows.py, weekly.yaml, months.yaml, the program `chromium`. Out: docs/images/*.png. Holds: no row of a real person is in
them. The noise is that of real runs, so each picture has other digits. Not covered: other browsers.

    .venv/bin/python examples/shop/picture.py
"""

import dataclasses
import html
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
from matplotlib.image import imread, imsave

HERE = pathlib.Path(__file__).resolve().parent
PICTURES = HERE.parents[1] / "docs" / "images"
MONTHS = ("2026-01-05", "2026-02-02", "2026-03-02")
"""The first weeks of three runs of four weeks each."""

WHO = re.compile(r"<bdi>[^<@]*@[^<@]*</bdi>")
"""Who ran a job, on which machine, as the page of a ledger tells it."""

NARROWEST = 500
"""Pixels: no window of the browser is narrower, so that a page for phones stands in a frame."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture of a page.

    Args:
        name: of its file.
        page: where the page is.
        width, height: of what is seen, in pixels, from its top.
        scheme: "light" or "dark", or "print" for the page on paper.
    """

    name: str
    page: pathlib.Path
    width: int
    height: int
    scheme: str = "light"


def main() -> None:
    """Make the pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("needs the program `chromium` (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for picture in pages(folder):
            take(picture, chromium, folder)


def pages(folder: pathlib.Path) -> list[Picture]:
    """Run the jobs in a folder, and say which pages are to be seen."""
    for job in ("weekly.yaml", "months.yaml"):
        (folder / job).mkdir()
        shutil.copy(HERE / job, folder / job / "job.yaml")
        run(folder / job, sys.executable, HERE / "make_rows.py")
    program = [sys.executable, "-m", "dp_pipelines.jobs.cli.main"]
    weekly, months = folder / "weekly.yaml", folder / "months.yaml"
    once = ["--run-id", "first-quarter", "--output", "out", "--anchor", weekly / "anchor"]
    run(weekly, *program, "run", "job.yaml", *once)
    for first in MONTHS:
        choice = ["--run-id", first, "--param", f"first={first}", "--output", f"out/{first}"]
        run(months, *program, "run", "job.yaml", *choice, "--anchor", months / "anchor")
    run(months, *program, "report", *(f"out/{first}" for first in MONTHS), "--output", "runs.html")
    export = ["ledger", "export", "job.yaml", "--format", "html", "--output", "ledger.html"]
    run(months, *program, *export, "--anchor", months / "anchor")
    report, last = weekly / "out" / "report.html", months / "out" / MONTHS[-1] / "report.html"
    return [
        Picture("report", report, 960, 1010),
        Picture("report-phone", last, 390, 1300, "dark"),
        Picture("report-print", report, 794, 1123, "print"),
        Picture("report-ranges", last, 1280, 1200),
        Picture("runs", months / "runs.html", 1280, 1000),
        Picture("ledger", months / "ledger.html", 1280, 1000),
    ]


def take(picture: Picture, chromium: str, folder: pathlib.Path) -> None:
    """Take one picture."""
    page = WHO.sub("<bdi>ann@host</bdi>", picture.page.read_text(encoding="utf-8"))
    if picture.scheme == "print":  # what is for paper is shown on a screen, with the margins of paper
        page = page.replace("@media print", "@media all").replace("</style>", "body { padding: 45px; }</style>")
    frame = f'<body style="margin: 0"><iframe srcdoc="{html.escape(page)}" style="border: 0; width: {picture.width}px; '
    seen = folder / "seen.html"
    seen.write_text(f'{frame}height: {picture.height}px"></iframe></body>', encoding="utf-8")
    quiet = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"]
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    size = f"--window-size={max(picture.width, NARROWEST)},{picture.height}"
    colours = f"--blink-settings=preferredColorScheme={0 if picture.scheme == 'dark' else 1}"
    file, profile = PICTURES / f"{picture.name}.png", f"--user-data-dir={folder / 'profile'}"
    run(folder, chromium, *quiet, *root, size, colours, profile, f"--screenshot={file}", seen.as_uri())
    imsave(file, np.ascontiguousarray(imread(file)[: picture.height, : picture.width, :3]))


def run(folder: pathlib.Path, *command: object) -> None:
    """Run a command in a folder."""
    done = subprocess.run([str(part) for part in command], cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
