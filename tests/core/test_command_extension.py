"""A toy extension of another distribution adds a command without a change in the core.

In: a distribution with one entry point, made in a temporary folder. Out: its command in help, its run, refusals. Holds: the toy
uses what built-in extensions use: the options of jobs, checked job files, errors, printing. Not covered: readers and outputs.
"""

import importlib.metadata
import json
import pathlib
from collections.abc import Callable

import pytest

from dp_pipelines import extensions
from dp_pipelines.jobs.cli.extension_command import Command
from tests.jobs.conftest import Said, Shop, stage

Call = Callable[..., Said]

METADATA = "Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n"

TOY = '''
"""The command `stages`: the stages of a job and the columns of their partitions."""

import argparse

from dp_pipelines.errors import BudgetError, RequestError
from dp_pipelines.jobs.cli.arguments import job_arguments
from dp_pipelines.jobs.cli.extension_command import DONE, Command
from dp_pipelines.jobs.terminal import output

EPILOG = """examples:
  dp-pipelines stages weekly.yaml
"""


class _Stages:
    """The command `stages`."""

    example = ("stages weekly.yaml", "the stages of a job")
    takes_runner = False
    needs_arrow = True
    defers_collection = False

    def add(self, make):
        """Add the parser of `stages`."""
        parser = make("stages", "list the stages of a job", EPILOG)
        parser.add_argument("job", metavar="JOB", help="the job file, YAML or JSON")
        parser.add_argument("--most", metavar="N", type=int, default=9, help="the most stages of a job")
        parser.add_argument("--json", action="store_true", help="print JSON instead of text")
        job_arguments.add_parameters(parser)

    def run(self, given, rest):
        """Print the stages of a job."""
        from dp_pipelines.jobs.request.request import check
        from dp_pipelines.jobs.spec import job_file
        from dp_pipelines.jobs.terminal import summary

        request = check(job_file.load(given.job), given.param)
        if given.most < 1:
            raise RequestError(field="--most", message="must be at least 1", hint="leave it out")
        if len(request.stages) > given.most:
            raise BudgetError(field="stages", message="are more than --most")
        found = {name: list(query.partition_columns) for name, query in request.queries.items()}
        with output.printing():
            print(summary.as_json(found) if given.json else ", ".join(found))
        return DONE


STAGES: Command = _Stages()
'''


@pytest.fixture
def toy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A distribution with the command `stages`, on the path of this process."""
    metadata = tmp_path / "toy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(f"[{extensions.GROUP}]\ncommand:stages = toy_stages:STAGES\n")
    (tmp_path / "toy_stages.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("toy")
def test_a_toy_command_is_in_help_runs_and_refuses_as_built_in_ones_do(shop: Shop, call: Call) -> None:
    assert isinstance(extensions.load("command", "stages"), Command)
    listing = call("--help")
    assert (listing.code, listing.err) == (0, "")
    assert "list the stages of a job" in listing.out
    assert "  dp-pipelines stages weekly.yaml " in listing.out
    helped = call("stages", "--help")
    assert helped.code == 0
    assert "the most stages of a job" in helped.out
    assert "--param NAME=VALUE" in helped.out
    job = shop.write(stages={"weekly": stage(), "daily": stage(partition_by=["product"])})
    assert call("stages", job) == Said(0, "weekly, daily\n", "")
    listed = call("stages", job, "--json")
    assert json.loads(listed.out)["daily"] == ["product"]
    for arguments, code, words in (
        ([job, "--most", "0"], 2, "error: --most: must be at least 1; leave it out\n"),
        ([job, "--most", "1"], 3, "error: stages: are more than --most\n"),
        ([job, "--runner", "direct"], 2, "unknown argument --runner"),
        ([shop.folder / "none.yaml"], 2, "cannot be read"),
    ):
        refused = call("stages", *arguments)
        assert refused.code == code, refused
        assert words in refused.err
        assert refused.out == ""


def test_without_its_distribution_a_toy_command_is_an_unknown_one(call: Call) -> None:
    refused = call("stages", "job.yaml")
    assert refused.code == 2
    assert "stages" in refused.err
    assert "stages" not in {
        entry.name.rpartition(":")[2] for entry in importlib.metadata.entry_points(group=extensions.GROUP)
    }
