"""How far the numbers of the recipes are from the truth, which is known for made-up rows.

In: the jobs in docs/recipes, make_rows.py. Out: for each number of each recipe the error and the noise that the release states.
Holds: the truth is what the question of a recipe means, without bounds, by DuckDB. The noise is that of real runs, so each call
prints other errors. Not covered: rows of other shapes.

    .venv/bin/python examples/recipes/errors.py [RECIPE ...]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import NamedTuple

import duckdb
import numpy as np

from dp_pipelines.metrics.error_bars import deviations_in_bar

HERE = pathlib.Path(__file__).resolve().parent
PAGES = HERE.parents[1] / "docs" / "recipes"
JOB = re.compile(r"<!-- file: (?P<file>\S+) -->\n```yaml\n(?P<text>.*?)```", re.DOTALL)

FIRST_DAYS = "SELECT user_id, min(day) AS first_day FROM events GROUP BY user_id"


class Question(NamedTuple):
    """What a stage of a recipe asks.

    Args:
        stage: its name, that of its file.
        key: the columns of its groups.
        metrics: what is compared.
        truth: a SELECT of these columns over `events`, `survey` or `ab_test`.
        options: of the command that runs the job.
    """

    stage: str
    key: tuple[str, ...]
    metrics: tuple[str, ...]
    truth: str
    options: tuple[str, ...] = ()


MONTH = "day >= DATE '2026-03-02' AND day < DATE '2026-03-30'"

QUESTIONS = {
    "funnel": [
        Question(
            "funnel",
            ("step",),
            ("users",),
            f"""SELECT step, count(DISTINCT user_id) AS users FROM events JOIN ({FIRST_DAYS}) USING (user_id)
            WHERE day < first_day + 7 AND first_day <= DATE '2026-03-22' GROUP BY step""",
        )
    ],
    "retention": [
        Question(
            "retention",
            ("weeks_since",),
            ("users",),
            f"""SELECT (day - first_day) // 7 AS weeks_since, count(DISTINCT user_id) AS users
            FROM events JOIN ({FIRST_DAYS}) USING (user_id)
            WHERE first_day <= DATE '2026-01-25' GROUP BY weeks_since""",
        )
    ],
    "top_products": [
        Question(
            "top_products",
            ("product",),
            ("orders",),
            "SELECT product, count(*) AS orders FROM events WHERE step = 'order' GROUP BY product",
        )
    ],
    "active_users": [
        Question(
            "daily",
            ("day",),
            ("users",),
            f"SELECT day, count(DISTINCT user_id) AS users FROM events WHERE {MONTH} GROUP BY day",
        ),
        Question(
            "weekly",
            ("week",),
            ("users",),
            f"""SELECT CAST(date_trunc('week', day) AS DATE) AS week, count(DISTINCT user_id) AS users
            FROM events WHERE {MONTH} GROUP BY week""",
        ),
        Question("monthly", (), ("users",), f"SELECT count(DISTINCT user_id) AS users FROM events WHERE {MONTH}"),
    ],
    "dashboard": [
        Question(
            "visits",
            ("weekday", "country"),
            ("visits",),
            """SELECT isodow(day) AS weekday, country, count(*) AS visits FROM events
            WHERE step = 'visit' AND day >= DATE '2026-03-02' AND day < DATE '2026-03-09' GROUP BY weekday, country""",
            ("--param", "monday=2026-03-02", "--run-id", "week"),
        )
    ],
    "weighted_mean": [
        Question(
            "survey",
            (),
            ("mean_weights", "mean_weighted"),
            """SELECT sum(weight) AS mean_weights, sum(weight * (hours_online - 6)) AS mean_weighted FROM survey""",
        )
    ],
    "ab_test": [
        Question(
            "arms",
            ("arm",),
            ("users", "buyers", "revenue"),
            """SELECT arm, count(DISTINCT user_id) AS users, sum(ordered) AS buyers, sum(amount) AS revenue
            FROM ab_test GROUP BY arm""",
        )
    ],
    "wrong_release": [
        Question(
            "users",
            ("country",),
            ("users",),
            """SELECT country, count(DISTINCT user_id) AS users FROM events
            WHERE day >= DATE '2026-03-02' AND day < DATE '2026-03-09' GROUP BY country""",
            ("--param", "monday=2026-03-02", "--run-id", "week"),
        )
    ],
}
"""By page of docs/recipes: its questions."""


class Compared(NamedTuple):
    """A metric of a stage beside the truth.

    Args:
        name: of stage and metric.
        released, truth, deviation: numbers by group, and the noise that the release states of each.
        law: of the noise.
    """

    name: str
    released: np.ndarray
    truth: np.ndarray
    deviation: np.ndarray
    law: str = ""

    @property
    def errors(self) -> np.ndarray:
        """What was released, less what is true."""
        return self.released - self.truth


def job(recipe: str) -> str:
    """The job file of a recipe's page."""
    found = JOB.search((PAGES / f"{recipe}.md").read_text(encoding="utf-8"))
    assert found is not None
    return found["text"]


def compared(recipe: str, folder: pathlib.Path) -> list[Compared]:
    """Run a recipe in a folder with the made-up rows, without a ledger, and compare its numbers with the truth."""
    (folder / f"{recipe}.yaml").write_text(job(recipe), encoding="utf-8")
    questions = QUESTIONS[recipe]
    command = ["run", f"{recipe}.yaml", "--output", f"out/{recipe}", "--ledger", "none", *questions[0].options]
    done = subprocess.run(
        [sys.executable, "-m", "dp_pipelines.jobs.cli.main", *command],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stderr)
    rows = duckdb.connect()
    rows.sql(f"CREATE VIEW events AS SELECT * FROM '{folder / 'events' / '*.parquet'}'")
    rows.sql(f"CREATE VIEW survey AS SELECT * FROM '{folder / 'survey.parquet'}'")
    rows.sql(f"CREATE VIEW ab_test AS SELECT * FROM '{folder / 'ab_test.parquet'}'")
    content = json.loads((folder / "out" / recipe / "manifest.json").read_text(encoding="utf-8"))
    laws = {stage["name"]: {name: of["noise"] for name, of in stage["metrics"].items()} for stage in content["stages"]}
    found = []
    for question in questions:
        file = folder / "out" / recipe / f"{question.stage}.parquet"
        both = f"(SELECT * FROM '{file}') AS released " + (
            f"LEFT JOIN ({question.truth}) AS truth USING ({', '.join(question.key)})"
            if question.key
            else f"CROSS JOIN ({question.truth}) AS truth"
        )
        for metric in question.metrics:
            columns = f"released.{metric} AS r, coalesce(truth.{metric}, 0) AS t, released.{metric}_stddev AS s"
            numbers = rows.sql(f"SELECT {columns} FROM {both}").fetchnumpy()
            each = [np.asarray(numbers[name], np.float64) for name in ("r", "t", "s")]
            found.append(Compared(f"{question.stage}.{metric}", *each, law=laws[question.stage][metric]))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", choices=[[], *QUESTIONS])
    recipes = parser.parse_args().recipes or list(QUESTIONS)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run([sys.executable, HERE / "make_rows.py", "--output", folder], check=True, capture_output=True)
        print(
            f"{'recipe':16s}{'numbers':24s}{'groups':>7s}{'true, median':>14s}{'error, median':>15s}{'stated 95% bar':>16s}"
        )
        for recipe in recipes:
            for each in compared(recipe, folder):
                print(
                    f"{recipe:16s}{each.name:24s}{len(each.truth):7d}{np.median(each.truth):14,.0f}"
                    f"{np.median(np.abs(each.errors)):15,.1f}{deviations_in_bar(each.law) * np.median(each.deviation):16,.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
