"""The picture of a report in README.md and docs/index.md: made-up rows, the job beside this file, a screenshot by Chromium.

In: make_rows.py, weekly.yaml, the program `chromium`. Out: docs/images/report.png. Holds: no row of a real person is in it. The
noise is that of a real run, so each picture has other digits. Not covered: colours of a dark screen.

    .venv/bin/python examples/shop/picture.py
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PICTURE = HERE.parents[1] / "docs" / "images" / "report.png"
WIDTH, HEIGHT = 960, 1010
"""Of the window, in pixels: the top of the page, down to the end of the first chart."""


def main() -> None:
    """Make the picture."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("needs the program `chromium` (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copy(HERE / "weekly.yaml", folder)
        run(folder, sys.executable, HERE / "make_rows.py")
        program = [sys.executable, "-m", "dp_pipelines.jobs.cli.main"]
        job = ["run", "weekly.yaml", "--run-id", "first-quarter", "--output", "out"]
        run(folder, *program, *job, "--anchor", folder / "anchor")
        quiet = ["--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"]
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        size = [f"--window-size={WIDTH},{HEIGHT}", "--blink-settings=preferredColorScheme=1"]
        profile = f"--user-data-dir={folder / 'profile'}"
        page = (folder / "out" / "report.html").as_uri()
        run(folder, chromium, *quiet, *root, *size, profile, f"--screenshot={PICTURE}", page)


def run(folder: pathlib.Path, *command: object) -> None:
    """Run a command in a folder."""
    done = subprocess.run([str(part) for part in command], cwd=folder, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)


if __name__ == "__main__":
    main()
