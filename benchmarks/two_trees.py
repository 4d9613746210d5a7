"""What a change costs: the query of the peers' comparison on two checkouts, in turns.

In: the folders of two checkouts, each with its `.venv`, a kind of rows and their number. Out: processor seconds of each run, and
their ratio. Holds: both trees read the same files, one run after the other, so that what else the machine does hits both; the
release's number of partitions is nearly the same. Not covered: imports and planning, which are told apart by the runs.

    git worktree add ../before COMMIT   # and `make .venv/installed` there
    python benchmarks/two_trees.py ../before . --kind strings [--rows 10_000_000] [--turns 5]
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import data

QUERY = pathlib.Path("benchmarks", "peers", "ours.py")


def seconds(tree: pathlib.Path, folder: pathlib.Path) -> float:
    """Processor seconds of one run of a tree's own query, from the files to the published folder."""
    python = tree / ".venv" / "bin" / "python"
    ended = subprocess.run([python, QUERY, folder], cwd=tree, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"the query in {tree} failed\n{ended.stderr[-2000:]}")
    return float(json.loads(ended.stdout.splitlines()[-1])["cpu_seconds"])


def main() -> None:
    """Run both trees in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--kind", choices=data.KINDS, default="even")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    folder = data.dataset(asked.kind, asked.rows).resolve()
    told: dict[str, list[float]] = {"before": [], "after": []}
    for turn in range(asked.turns):
        for name in ("before", "after") if turn % 2 == 0 else ("after", "before"):
            told[name].append(seconds(getattr(asked, name).resolve(), folder))
    ratios = [after / before for before, after in zip(told["before"], told["after"], strict=True)]
    for name, runs in told.items():
        print(f"{name:6s} median {statistics.median(runs):.2f} s of processor time; all: {runs}")
    print(f"after / before: median {statistics.median(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")


if __name__ == "__main__":
    main()
