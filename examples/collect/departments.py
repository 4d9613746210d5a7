"""Ta Feng's customers say in which of 32 departments they buy most: at random on their own device, through a shuffler, or not.

In: the data that examples/ta_feng/fetch.py fetches. Out: under --out a folder of reports and a release for each way, and
comparison.html, which shows them beside the true values; a table of errors on standard output. Holds: all goes through the
command line, as a user's job would; true values are shown since the data are public. Not covered: real devices and a real
shuffler: here one program plays them all.

    python examples/ta_feng/fetch.py && python examples/collect/departments.py [--data DIR] [--out DIR]
"""

import argparse
import json
import pathlib
import secrets
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dp_pipelines.collect.domain import Choices
from dp_pipelines.collect.question import Question
from dp_pipelines.collected.shuffling import local_epsilon_for

DEPARTMENTS = (
    *("100", "110", "120", "130", "300", "320", "321", "470", "500", "501", "510", "520", "530", "540", "560", "570"),
    *("590", "710", "711", "712", "713", "715", "720", "730", "731", "740", "750", "760", "761", "780", "751", "other"),
)
"""As the shop knows them: the first three digits of a product's subclass."""

LOCAL = (1, 2, 4)
HONEST, CENTRAL, DELTA = 30_000, 1.0, 1e-6
"""The shuffler's declared lower bound of honest reports, and what it and the central release promise."""


def main() -> int:
    """Fetch nothing, ask everybody, publish, compare."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--data", type=pathlib.Path, default=pathlib.Path("data/ta_feng"))
    options.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/departments"))
    given = options.parse_args()
    customers, answers = favourites(given.data)
    given.out.mkdir(parents=True)
    ways = {
        f"local epsilon {epsilon}": collected(given.out / f"local-{epsilon}", answers, epsilon) for epsilon in LOCAL
    }
    behind = local_epsilon_for(CENTRAL, reports=HONEST, delta=DELTA)
    ways[f"shuffled: local epsilon {behind}"] = collected(given.out / "shuffled", answers, behind, mixed=True)
    ways[f"central epsilon {CENTRAL:g}"] = central(given.out / "central", customers, answers)
    truth = np.array([answers.count(name) for name in DEPARTMENTS])
    (given.out / "comparison.html").write_text(page(truth, ways))
    print(f"{len(answers):,} customers, {len(DEPARTMENTS)} departments; the largest has {truth.max():,}\n")
    print("| way | root mean square error of a department | the largest department |\n|---|---:|---:|")
    for way, (people, deviation) in ways.items():
        top = int(truth.argmax())
        error = float(np.sqrt(np.mean((people - truth) ** 2)))
        print(f"| {way} | {error:,.1f} | {people[top]:,.0f} ± {2 * deviation[top]:,.0f} |")
    print(f"\nsee {given.out / 'comparison.html'}")
    return 0


def favourites(data: pathlib.Path) -> tuple[list[str], list[str]]:
    """Each customer, and the department in which they have bought most rows; of several the first by name."""
    rows = pq.read_table(data, columns=["CUSTOMER_ID", "PRODUCT_SUBCLASS"])
    department = pc.utf8_slice_codeunits(rows.column("PRODUCT_SUBCLASS"), 0, 3)
    known = pc.if_else(pc.is_in(department, pa.array(DEPARTMENTS)), department, "other")
    table = pa.table({"customer": rows.column("CUSTOMER_ID"), "department": known})
    counted = table.group_by(["customer", "department"]).aggregate([([], "count_all")])
    counted = counted.sort_by([("customer", "ascending"), ("count_all", "descending"), ("department", "ascending")])
    first: dict[str, str] = {}
    for customer, name in zip(*(counted.column(key).to_pylist() for key in ("customer", "department")), strict=True):
        first.setdefault(customer, name)
    return list(first), list(first.values())


def collected(
    folder: pathlib.Path, answers: list[str], epsilon: object, mixed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Have every device answer, and estimate from the reports."""
    folder.mkdir()
    question = Question("department", Choices(DEPARTMENTS, otherwise="other"), epsilon=epsilon)
    (folder / "department.json").write_text(question.to_json())
    reports = [question.report(answer)["report"] for answer in answers]
    if mixed:  # what a shuffler does: no name is left, nor an order
        secrets.SystemRandom().shuffle(reports)
    columns = dict(zip(question.randomizer.fields, map(list, zip(*reports, strict=True)), strict=True))
    pq.write_table(pa.table(columns), folder / "reports.parquet")
    job: dict[str, object] = {
        "dataset": "departments",
        "source": {"parquet": "reports.parquet"},
        "expect": {"reports": HONEST},
        "stages": {"departments": {"kind": "collected", "question": "department.json"}},
    }
    if mixed:
        job["shuffler"] = {"honest_reports": HONEST, "delta": DELTA}
    table = published(folder, job)
    return table.column("people").to_numpy(), table.column("deviation").to_numpy()


def central(folder: pathlib.Path, customers: list[str], answers: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The same numbers from a table that somebody holds."""
    folder.mkdir()
    pq.write_table(pa.table({"customer": customers, "department": answers}), folder / "reports.parquet")
    job = {
        "dataset": "departments",
        "privacy_unit": "customer",
        "budget": {"epsilon": CENTRAL, "delta": DELTA},
        "source": {"parquet": "reports.parquet"},
        "stages": {
            "departments": {
                "kind": "aggregate",
                "partition_by": "department",
                "partitions": {"public": [[name] for name in DEPARTMENTS]},
                "bounds": {"max_partitions_contributed": 1, "max_contributions_per_partition": 1},
                "metrics": {"people": {"kind": "privacy_id_count"}},
            }
        },
    }
    table = published(folder, job)
    places = [table.column("department").to_pylist().index(name) for name in DEPARTMENTS]
    return table.column("people").to_numpy()[places], table.column("people_stddev").to_numpy()[places]


def published(folder: pathlib.Path, job: dict[str, object]) -> pa.Table:
    """The table that a job publishes. These customers' data are public, so no ledger need remember the run."""
    (folder / "job.json").write_text(json.dumps(job, indent=1))
    command = [sys.executable, "-m", "dp_pipelines.jobs.cli.main", "run", str(folder / "job.json")]
    done = subprocess.run(
        [*command, "--output", str(folder / "release"), "--ledger", "none"], capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return pq.read_table(folder / "release" / "departments.parquet")


def page(truth: np.ndarray, ways: dict[str, tuple[np.ndarray, np.ndarray]]) -> str:
    """A picture for each way: bars are true values, dots estimates with two standard deviations to either side."""
    order = np.argsort(-truth)
    most = 1.15 * max(float(truth.max()), *(float((people + 2 * bar).max()) for people, bar in ways.values()))

    def height(value: float) -> float:
        return 160 - 140 * value / most

    pictures = []
    for way, (people, deviation) in ways.items():
        shapes = []
        for place, at in enumerate(order):
            x, low, high = 20 + 22 * place, people[at] - 2 * deviation[at], people[at] + 2 * deviation[at]
            top = height(float(truth[at]))
            shapes.append(f'<rect x="{x}" y="{top:.1f}" width="16" height="{160 - top:.1f}" fill="#c9d3de"/>')
            shapes.append(
                f'<path d="M{x + 8} {height(low):.1f}V{height(high):.1f}" stroke="#1b5e9f" stroke-width="2"/>'
            )
            shapes.append(f'<circle cx="{x + 8}" cy="{height(float(people[at])):.1f}" r="3.5" fill="#1b5e9f"/>')
            shapes.append(f'<text x="{x + 8}" y="215" font-size="8" text-anchor="middle">{DEPARTMENTS[at]}</text>')
        drawn = f'<svg viewBox="0 0 740 220" width="100%" role="img" aria-label="{way}">{"".join(shapes)}</svg>'
        pictures.append(f"<h2>{way}</h2>{drawn}")
    words = (
        "Grey bars are the true numbers of customers, by the department where they buy most; dots are what is published, "
        "with two standard deviations to either side. Who answers at random on their own device trusts nobody, and who "
        "reads the answers learns little beyond the largest departments."
    )
    style = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    head = f"<!DOCTYPE html><html lang='en'><meta charset='utf-8'><title>Departments</title><style>{style}</style>"
    return f"{head}<h1>Where customers buy most</h1><p>{words}</p>{''.join(pictures)}</html>\n"


if __name__ == "__main__":
    sys.exit(main())
