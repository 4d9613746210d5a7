"""Write the golden answers anew: after a change that was meant to change them, and after reading what changed.

In: this library. Out: plans.json, records.json, runs.json, asked.json, statistics.json and refusals.json next to it.
Run: python tests/golden/write.py, or with --new to add the answers of jobs that have none (those of a kind in `jobs.LATER`).
"""

import json
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from tests.golden import answers, jobs, plan_records, wrong


def main(*, only_new: bool = False) -> None:
    """Write all six files, or what is not in them yet."""
    files = (answers.PLANS, answers.RUNS, answers.ASKED, answers.STATISTICS, answers.REFUSALS, answers.RECORDS)
    plans, runs, asked, totals, refusals, records = (answers.kept(name) if only_new else {} for name in files)
    with tempfile.TemporaryDirectory() as place:
        folder = pathlib.Path(place)
        os.environ |= {"XDG_CACHE_HOME": place + "/cache", "XDG_STATE_HOME": place + "/state"}
        for number in range(jobs.ALL):
            name = str(number)
            if name not in plans:
                plans[name], runs[name] = answers.plan(folder, number), answers.run(folder, number)
                if not str(plans[name]).startswith("exit") and answers.is_fixed(number):
                    totals[name] = answers.statistics(folder, number)
            if name not in records and not str(plans[name]).startswith("exit"):
                records[name] = plan_records.content(plan_records.planned(answers.request_of(folder, number)))
            if name not in asked:
                asked[name] = answers.asked(folder, number)
        for given in wrong.inputs():
            if given.name not in refusals:
                refusals[given.name] = answers.refusal(folder, given)
    for name, content in zip(files[:-1], (plans, runs, asked, totals, refusals), strict=True):
        (answers.HERE / name).write_text(json.dumps(content, indent=1) + "\n")
    (answers.HERE / answers.RECORDS).write_text(plan_records.to_text(records))


if __name__ == "__main__":
    main(only_new="--new" in sys.argv[1:])
