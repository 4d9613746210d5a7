"""What is left of each budget, as a text file for Prometheus (the textfile collector of node_exporter).

In: a ledger. Out: gauges of epsilon, delta and runs, by account; `alarms.yaml` beside this file has rules for them. Holds: every
number is public; the file is replaced in one step. Exit code 1 if the ledger cannot be read: the old file stays, and its age is
an alarm too.

    python budgets.py --ledger dp-ledger.sqlite --output metrics/dp_pipelines.prom
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

GAUGES = {
    "dp_pipelines_epsilon": "Epsilon of an account: its cap, what is spent, what is left.",
    "dp_pipelines_delta": "Delta of an account, likewise.",
    "dp_pipelines_runs": "Runs of a plan: how many its budget covers, how many are used, how many are left.",
}


def shown(ledger: str) -> dict[str, Any]:
    """Return what `ledger show` says of a ledger."""
    command = ["dp-pipelines", "ledger", "show", "--ledger", ledger, "--json"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def samples(content: dict[str, Any]) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield the samples: the gauge, its labels, its value."""
    for account in content["accounts"]:
        for window, budget in account["budgets"].items():
            for what in ("cap", "spent", "left"):
                labels = {"account": account["account"], "window": window, "of": what}
                for unit in ("epsilon", "delta"):
                    yield f"dp_pipelines_{unit}", labels, budget[what][unit]
        for plan in account["plans"]:
            runs = {"covered": plan["runs"], "used": plan["used"], "left": plan["runs"] - plan["used"]}
            for what, number in runs.items():
                labels = {
                    "account": account["account"],
                    "window": plan["window"],
                    "plan": plan["plan"][:16],
                    "of": what,
                }
                yield "dp_pipelines_runs", labels, number


def as_text(content: dict[str, Any]) -> str:
    """Return the file in Prometheus' text format."""
    lines = []
    values = list(samples(content))
    for gauge, words in GAUGES.items():
        lines += [f"# HELP {gauge} {words}", f"# TYPE {gauge} gauge"]
        for name, labels, value in values:
            if name == gauge:
                pairs = ",".join(f"{key}={_quoted(text)}" for key, text in labels.items())
                lines.append(f"{name}{{{pairs}}} {value!r}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def main() -> int:
    """Write the file. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ledger", required=True, help="a path or postgresql://...")
    parser.add_argument("--output", type=pathlib.Path, required=True, help="the file to write")
    given = parser.parse_args()
    try:
        text = as_text(shown(given.ledger))
    except subprocess.CalledProcessError:
        return 1
    partial = given.output.with_name(f".{given.output.name}.partial")
    partial.write_text(text)
    partial.replace(given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
