"""`run --lineage`: events that OpenLineage's own schema takes, with the guarantee in a facet, and nothing of the rows.

In: runs over the shop. Out: files of events. Not covered: services that receive events.
"""

import datetime
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import jsonschema
import pyarrow.parquet
import pytest

from dp_pipelines.disk_errors import DiskError
from dp_pipelines.extensions.lineage import events
from dp_pipelines.jobs.cli import run_commands
from tests.helpers.public_schemas import public_schema
from tests.helpers.source import ROOT
from tests.jobs.conftest import Said, Shop, purchases, stage

Call = Callable[..., Said]

FACET = json.loads((ROOT / "docs" / "reference" / "privacy_run_facet.json").read_text())
CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
KEYS = {"eventType", "eventTime", "run", "job", "inputs", "outputs", "producer", "schemaURL"}


@pytest.fixture
def daily(shop: Shop) -> Shop:
    """A job of two runs, each of a week."""
    shop.write(
        params={"week": {"type": "date"}}, budget={"epsilon": 2.0, "delta": 1e-6, "runs": 2}, stages={"weekly": stage()}
    )
    return shop


def run(shop: Shop, call: Call, week: str, *options: object) -> Said:
    """Release a week."""
    names = ("--run-id", "{week}", "--output", shop.folder / "{week}", "--lineage", shop.folder / "{week}.jsonl")
    return call("run", shop.job, "--param", f"week={week}", *names, *options)


def events_of(path: pathlib.Path) -> list[dict[str, Any]]:
    """Return the events of a file, after a look at their shape and at the facet of each."""
    found = [json.loads(line) for line in path.read_text().splitlines()]
    for event in found:
        assert set(event) == KEYS
        assert list(event["run"]["facets"]) == [events.FACET]
        jsonschema.validate(event["run"]["facets"][events.FACET], FACET, format_checker=CHECKER)
    return found


def test_a_run_writes_two_events_with_its_guarantee(daily: Shop, call: Call) -> None:
    done = run(daily, call, "2025-01-06")
    assert done.code == 0, done.err
    assert "note: wrote lineage events to" in done.err
    start, complete = events_of(daily.folder / "2025-01-06.jsonl")
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    manifest = json.loads((daily.folder / "2025-01-06" / "manifest.json").read_text())
    facet = complete["run"]["facets"][events.FACET]
    assert (facet["epsilon"], facet["delta"], facet["runs"], facet["account"]) == (2.0, 1e-6, 2, "shop")
    assert (facet["plan"], facet["accountedEpsilon"]) == (manifest["plan"], manifest["accounted"]["epsilon"])
    assert facet["unit"] == "value of customer"
    assert [dataset["name"] for dataset in complete["outputs"]] == [str(daily.folder / "2025-01-06" / "weekly")]
    assert [dataset["name"] for dataset in complete["inputs"]] == [str(daily.folder / "data" / "*.parquet")]


def test_events_are_valid_by_the_schema_of_open_lineage(daily: Shop, call: Call) -> None:
    schema = public_schema("OpenLineage.json")
    assert schema["$id"] in events.SCHEMA
    assert run(daily, call, "2025-01-06").code == 0
    assert run(daily, call, "2025-01-13", "--runner", "no_such").code != 0
    validator = jsonschema.Draft202012Validator(schema, format_checker=CHECKER)
    for week in ("2025-01-06", "2025-01-13"):
        for event in events_of(daily.folder / f"{week}.jsonl"):
            assert [error.message for error in validator.iter_errors(event)] == []


def test_a_refused_run_writes_that_it_failed_and_a_retry_is_the_same_run(daily: Shop, call: Call) -> None:
    assert run(daily, call, "2025-01-06").code == 0
    first = events_of(daily.folder / "2025-01-06.jsonl")
    assert run(daily, call, "2025-01-13").code == 0
    assert run(daily, call, "2025-01-20").code == 3
    start, fail = events_of(daily.folder / "2025-01-20.jsonl")
    assert (start["eventType"], fail["eventType"], fail["outputs"]) == ("START", "FAIL", [])
    assert run(daily, call, "2025-01-06").code == 0
    again = events_of(daily.folder / "2025-01-06.jsonl")
    assert again[1]["run"]["runId"] == first[1]["run"]["runId"] != fail["run"]["runId"]


def test_other_rows_and_longer_runs_write_the_same_events(daily: Shop, call: Call) -> None:
    found = []
    for rows in (400, 40):
        pyarrow.parquet.write_table(purchases(7, rows=rows), daily.folder / "data" / "part-0.parquet")
        target = daily.folder / "events.jsonl"
        options = (
            "--run-id",
            str(rows),
            "--output",
            daily.folder / f"out-{rows}",
            "--lineage",
            target,
            "--ledger",
            "none",
        )
        assert call("run", daily.job, "--param", "week=2025-01-06", *options).code == 0
        start, complete = events_of(target)
        assert start["eventTime"] == complete["eventTime"]
        for event in (start, complete):
            del event["run"]["runId"], event["eventTime"]
        found.append(json.dumps([start, complete]).replace(f"out-{rows}", "out"))
    assert found[0] == found[1]
    assert '"account": null' in found[0]


@pytest.mark.parametrize(
    ("target", "refusal"),
    [("no/such/events.jsonl", "must be a file in a folder that exists"), ("2025-01-06/events.jsonl", "exists")],
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_is_charged(
    target: str, refusal: str, daily: Shop, call: Call
) -> None:
    options = ("--run-id", "one", "--output", daily.folder / "2025-01-06", "--lineage", daily.folder / target)
    refused = call("run", daily.job, "--param", "week=2025-01-06", *options)
    assert refused.code == 2
    assert refusal in refused.err
    assert not (daily.folder / "2025-01-06").exists()


def test_made_up_rows_have_no_lineage(daily: Shop, call: Call) -> None:
    options = ("--synthetic", "--output", daily.folder / "made-up", "--lineage", daily.folder / "events.jsonl")
    refused = call("run", daily.job, "--param", "week=2025-01-06", *options)
    assert refused.code == 2
    assert "a report of made-up rows is none" in refused.err


@pytest.mark.parametrize("name", ["job.yaml", "dp-ledger.sqlite", "data/part-0.parquet", "device"])
def test_no_file_is_replaced_that_has_no_events(name: str, daily: Shop, call: Call) -> None:
    (daily.folder / "device").symlink_to("/dev/null")
    assert run(daily, call, "2025-01-06").code == 0
    before = (daily.folder / name).read_bytes()
    options = ("--run-id", "two", "--output", daily.folder / "two", "--lineage", daily.folder / name)
    refused = call("run", daily.job, "--param", "week=2025-01-13", *options)
    assert refused.code == 2
    assert "is a file without lineage events, and is not replaced" in refused.err
    assert (daily.folder / name).read_bytes() == before
    assert not (daily.folder / "two").exists()


def test_a_ledger_that_the_run_itself_makes_is_not_replaced(daily: Shop, call: Call) -> None:
    folder = daily.folder / "elsewhere"
    folder.mkdir()
    (folder / "data").symlink_to(daily.folder / "data")
    job, ledger, release = folder / "job.yaml", folder / "dp-ledger.sqlite", folder / "one"
    job.write_text(daily.job.read_text())
    names = ("--run-id", "one", "--output", release, "--lineage", ledger)
    done = call("run", job, "--param", "week=2025-01-06", *names)
    assert done.code == 1
    assert f"the release is published in {release}" in done.err
    assert call("ledger", "verify", job).code == 0


def test_events_that_a_full_disk_refuses_do_not_deny_the_release(
    daily: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: pathlib.Path, content: bytes) -> None:
        raise DiskError(str(path.parent), "the disk is full")

    with monkeypatch.context() as patched:
        patched.setattr(events, "write_whole", full)
        failed = run(daily, call, "2025-01-06")
    assert failed.code == 1
    assert "--lineage: the disk is full; the release is published in" in failed.err
    assert "nothing was published" not in failed.err
    assert (daily.folder / "2025-01-06" / "manifest.json").exists()
    assert run(daily, call, "2025-01-06").code == 0
    assert events_of(daily.folder / "2025-01-06.jsonl")[1]["eventType"] == "COMPLETE"


def test_events_do_not_tell_how_long_an_earlier_run_took_to_finish(
    daily: Shop, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    def slow(*arguments: object) -> None:
        time.sleep(1.1)
        ended.append(datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))

    monkeypatch.setattr(run_commands, "finish_earlier", slow)
    assert run(daily, call, "2025-01-06").code == 0
    assert events_of(daily.folder / "2025-01-06.jsonl")[0]["eventTime"] < ended[0]


def test_another_job_without_a_run_id_is_another_run(shop: Shop, call: Call) -> None:
    found = []
    for number, epsilon in enumerate((1.0, 1.0, 2.0)):
        shop.write(budget={"epsilon": epsilon, "delta": 1e-6}, stages={"weekly": stage()})
        target = shop.folder / f"{number}.jsonl"
        call("run", shop.job, "--output", shop.folder / f"out-{epsilon}", "--lineage", target)
        found.append(events_of(target)[0]["run"]["runId"])
    assert found[0] == found[1] != found[2]
