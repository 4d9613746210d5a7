"""The names of files that a run read: what an event holds of them, and how they differ later.

In: paths. Out: JSON values, sentences. Not covered: which command says them (tests/jobs/run/test_ledgered_run.py).
"""

import json

from dp_pipelines.ledger.read_files import MOST_NAMES, ReadFiles, read_files


def test_names_are_those_below_the_job_file_so_that_the_folder_may_be_moved() -> None:
    here, there = (read_files([f"{folder}/data/a.csv", "/lake/b.csv"], folder) for folder in ("/a", "/b"))
    assert here == there
    assert here.names == ("/lake/b.csv", "data/a.csv")
    assert here.changes(there) == ""


def test_many_files_are_told_by_their_number() -> None:
    before = read_files([f"/j/{number}.csv" for number in range(MOST_NAMES)], "/j")
    after = read_files([f"/j/{number}.csv" for number in range(MOST_NAMES + 1)], "/j")
    assert (len(before.names), after.names) == (MOST_NAMES, ())
    assert before.changes(after) == "it read 500 files, and now there are 501, or others"
    assert after.changes(after) == ""


def test_an_event_holds_what_it_gives_back_whatever_a_name_is() -> None:
    for paths in (["/j/a.csv"], ["/j/\udcff.csv"], []):
        told = read_files(paths, "/j")
        assert ReadFiles.from_json(json.loads(json.dumps(told.to_json()))) == told
        json.dumps(told.to_json(), ensure_ascii=False).encode()
