"""What a change costs: the query of the peers' comparison, or starts of small jobs, on two checkouts, in turns.

In: the folders of two checkouts, each with its `.venv`; for the query a kind of rows and their number. Out: processor seconds of
each run, and their ratio. Holds: both trees read the same files, one run after the other, so that what else the machine does hits
both; the release's number of partitions is nearly the same. Not covered: imports and planning of the query, which are told apart
by `--starts`.

    git worktree add ../before COMMIT   # and `make .venv/installed` there
    python benchmarks/two_trees.py ../before . --kind strings [--rows 10_000_000] [--turns 5]
    python benchmarks/two_trees.py ../before . --starts [--turns 9]
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

import data
import start

QUERY = pathlib.Path("benchmarks", "peers", "ours.py")
RUN = "dp-pipelines run"


def seconds(tree: pathlib.Path, folder: pathlib.Path) -> float:
    """Processor seconds of one run of a tree's own query, from the files to the published folder."""
    python = tree / ".venv" / "bin" / "python"
    ended = subprocess.run([python, QUERY, folder], cwd=tree, capture_output=True, text=True, check=False)
    if ended.returncode:
        sys.exit(f"the query in {tree} failed\n{ended.stderr[-2000:]}")
    return float(json.loads(ended.stdout.splitlines()[-1])["cpu_seconds"])


def start_seconds(tree: pathlib.Path, folder: pathlib.Path, name: str) -> float:
    """Processor seconds of one start, with the tree's own environment.

    Args:
        tree: the checkout.
        folder: with the job, and the caches of this tree.
        name: of `start.CASES`, or `RUN`: a run without a ledger.
    """
    if name == "dp-pipelines plan":
        shutil.rmtree(folder / "cache", ignore_errors=True)
    shutil.rmtree(folder / "out", ignore_errors=True)
    code, *arguments = start.CASES.get(name, (start.CALL, "run", "job.yaml", "--output", "out", "--ledger", "none"))
    return start.call(folder, code, *arguments, python=tree / ".venv" / "bin" / "python")[1]


def compare(name: str, turns: int, measure: Callable[[str], float]) -> None:
    """Measure both trees in turns, and print the figures.

    Args:
        name: of what is measured.
        turns: how often.
        measure: gives the seconds of "before" or "after".
    """
    told: dict[str, list[float]] = {"before": [], "after": []}
    for turn in range(turns):
        for tree in ("before", "after") if turn % 2 == 0 else ("after", "before"):
            told[tree].append(measure(tree))
    ratios = [after / before for before, after in zip(told["before"], told["after"], strict=True)]
    medians = {tree: statistics.median(runs) for tree, runs in told.items()}
    each = ", ".join(f"{tree} {median:.2f} s" for tree, median in medians.items())
    print(
        f"{name:24s} {each} of processor time (medians of {turns}); after / before: median {statistics.median(ratios):.3f}, "
        f"{min(ratios):.3f} to {max(ratios):.3f}; of the least {min(told['after']) / min(told['before']):.3f}",
        flush=True,
    )


def main() -> None:
    """Run both trees in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("--starts", action="store_true", help="starts of small jobs instead of the query")
    parser.add_argument("--kind", choices=data.KINDS, default="even")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--turns", type=int, default=5)
    asked = parser.parse_args()
    trees = {"before": asked.before.resolve(), "after": asked.after.resolve()}
    if not asked.starts:
        folder = data.dataset(asked.kind, asked.rows).resolve()
        compare(f"{asked.kind}, {asked.rows:,} rows", asked.turns, lambda tree: seconds(trees[tree], folder))
        return
    with tempfile.TemporaryDirectory() as parent:
        folders = {tree: pathlib.Path(parent, tree) for tree in trees}
        for folder in folders.values():
            folder.mkdir()
            start.write_job(folder)
        for name in (*start.CASES, RUN):
            for tree in trees:
                start_seconds(trees[tree], folders[tree], name)  # compiles
            compare(name, asked.turns, lambda tree, name=name: start_seconds(trees[tree], folders[tree], name))


if __name__ == "__main__":
    main()
