"""Write the golden answers anew: after a change that was meant to change them, and after reading what changed.

In: this library. Out: plans.json, runs.json, statistics.json and refusals.json beside it. Run: python tests/golden/write.py
"""

import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.golden import answers, jobs, wrong


def main() -> None:
    """All four files."""
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        os.environ |= {"XDG_CACHE_HOME": place + "/cache", "XDG_STATE_HOME": place + "/state"}
        plans = {str(number): answers.plan(folder, number) for number in range(jobs.NUMBER)}
        runs = {str(number): answers.run(folder, number) for number in range(jobs.NUMBER)}
        planned = [number for number in range(jobs.NUMBER) if not plans[str(number)].startswith("exit")]
        totals = {str(number): answers.statistics(folder, number) for number in planned if answers.is_fixed(number)}
        refusals = {given.name: answers.refusal(folder, given) for given in wrong.inputs()}
    written = {answers.PLANS: plans, answers.RUNS: runs, answers.STATISTICS: totals, answers.REFUSALS: refusals}
    for name, content in written.items():
        (answers.HERE / name).write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
