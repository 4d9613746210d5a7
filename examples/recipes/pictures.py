"""The pictures of the recipes in docs/images: the jobs of docs/recipes on made-up rows, screenshots by Chromium.

In: make_rows.py, docs/recipes, the program `chromium`. Out: docs/images/recipe-*.png. Holds: no row of a real person is in them.
The noise is that of real runs, so each picture has other digits. Not covered: other browsers.

    .venv/bin/python examples/recipes/pictures.py
"""

import pathlib
import shutil
import sys
import tempfile

from errors import HERE, QUESTIONS, job

sys.path.append(str(HERE.parent / "shop"))
from picture import Picture, run, take

PICTURES = {
    "funnel": "recipe-funnel",
    "retention": "recipe-retention",
    "top_products": "recipe-top",
    "active_users": "recipe-active",
    "weighted_mean": "recipe-weighted",
    "ab_test": "recipe-ab",
}
"""By recipe the name of its picture."""

MONDAYS = ("2026-03-02", "2026-03-09", "2026-03-16")
"""Of the dashboard's runs."""

WIDTH, HEIGHT = 1000, 760


def main() -> None:
    """Make the pictures."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("needs the program `chromium` (Debian: apt-get install chromium)")
    program = (sys.executable, "-m", "dp_pipelines.jobs.cli.main")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run(folder, sys.executable, HERE / "make_rows.py")
        for recipe in QUESTIONS:
            (folder / f"{recipe}.yaml").write_text(job(recipe), encoding="utf-8")
        for recipe, picture in PICTURES.items():
            run(
                folder,
                *program,
                "run",
                f"{recipe}.yaml",
                "--output",
                f"out/{recipe}",
                "--ledger",
                "none",
                "--run-id",
                "once",
            )
            take(Picture(picture, folder / "out" / recipe / "report.html", WIDTH, HEIGHT), chromium, folder)
        for monday in MONDAYS:
            choice = ("--run-id", monday, "--param", f"monday={monday}", "--output", f"out/{monday}")
            run(folder, *program, "run", "dashboard.yaml", *choice, "--anchor", folder / "anchor")
        run(folder, *program, "report", *(f"out/{monday}" for monday in MONDAYS), "--output", "dashboard.html")
        take(Picture("recipe-dashboard", folder / "dashboard.html", WIDTH, HEIGHT), chromium, folder)


if __name__ == "__main__":
    main()
