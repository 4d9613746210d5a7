"""What this library answers to the made-up jobs and the wrong inputs, as digests that fit into a file.

In: a folder. Out: for each job its plan, or where its refusal points; the integers before the noise; for each wrong input the
exit code and where the message points. Holds: words for people are left out, so that they may change. Tests only.
"""

import contextlib
import functools
import hashlib
import io
import json
import pathlib
import re

import yaml

from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.jobs.beam_yaml.transforms import DpAggregate
from dp_pipelines.jobs.cli import main
from dp_pipelines.jobs.cli.shown_plan import ShownPlan
from dp_pipelines.jobs.request.joined_tables import with_limits
from dp_pipelines.jobs.request.queries import queries
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run.run import cached_plan
from dp_pipelines.jobs.runners import engines
from dp_pipelines.jobs.spec import from_query, job_file
from dp_pipelines.jobs.terminal import summary
from dp_pipelines.jobs.terminal.progress import Progress
from tests.engines import exact
from tests.golden import jobs, rows, wrong
from tests.jobs.conftest import Said

PLACE = re.compile(r"(job\.yaml:\d+): (?:(\S+): )?")


def call(*arguments: object) -> Said:
    """Run the command line in this process."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main.main([str(argument) for argument in arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    return Said(code, out.getvalue(), err.getvalue())


SAID_OF_NOISE = (
    "limits",
    "good_from",
    "good_from_left_out",
    "mostly_noise",
    "appear",
    "appear_by_bound",
    "mostly_missing",
    "noise_of_others_without",
    "expected_auc",
    "votes",
    "histograms_of",
    "units_by_size",
    "half_keep_users_by_bound",
)
"""What `plan --json` computes from the noise that it prints anyway: tests/planning is about that."""


def digest(content: object) -> str:
    """Of JSON values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:24]


def places(message: str) -> list[str]:
    """File, line and field of each complaint."""
    return [" ".join(filter(None, found.groups())) for found in map(PLACE.search, message.splitlines()) if found]


def write(folder: pathlib.Path, number: int, name: str = "job.yaml") -> pathlib.Path:
    """The file of a made-up job, with its rows beside it."""
    if not (folder / "data").exists():
        rows.written(folder)
    path = folder / name
    path.write_text(yaml.safe_dump(jobs.job(number), sort_keys=False))
    return path


def plan(folder: pathlib.Path, number: int) -> str:
    """What is planned for a job: all that the command prints as JSON, its records among it, but for words about it."""
    try:
        asked = request_of(folder, number)
        made = with_limits(cached_plan(asked.file, asked.stages, asked.asked).to_json(), asked.file.job)
    except DpError:
        said = call("plan", write(folder, number), "--json")
        return f"exit {said.code} at {places(said.err)}"
    shown = ShownPlan(stages=asked.stages, plan=made, groups=(), request=asked, notes={})
    return digest_of_plan(summary.as_json(shown.to_json()))


def digest_of_plan(printed: str) -> str:
    """Return the digest of a plan as the command prints it, without words about it."""
    content = json.loads(printed)
    for stage in content["stages"]:
        for described in (stage, stage.get("selection") or {}, *stage["metrics"].values()):
            for key in SAID_OF_NOISE:
                described.pop(key, None)
    return digest(content)


@functools.cache
def file_of(folder: pathlib.Path, number: int) -> job_file.JobFile:
    """Return the file of a made-up job, read once for all tests of this process."""
    return job_file.load(str(write(folder, number)))


@functools.cache
def request_of(folder: pathlib.Path, number: int) -> Request:
    """Return what a made-up job asks for, checked once for all tests of this process.

    Raises:
        RequestError: it is refused.
    """
    return check(file_of(folder, number), [])


def run(folder: pathlib.Path, number: int) -> str:
    """What a run of a job is: the hash by which a ledger and a folder know it again."""
    try:
        return request_of(folder, number).content
    except RequestError as error:
        return f"refused at {places(str(error))}"


def asked(folder: pathlib.Path, number: int) -> dict[str, list[str]]:
    """What a run of each aggregate stage is where a session asks for its query, and where a pipeline of Beam YAML does."""
    try:
        file = file_of(folder, number)
        of_stages = queries(file)
    except RequestError:
        return {}
    found = {}
    for name, query in of_stages.items():
        stage = jobs.job(number)["stages"][name]
        budget = {"epsilon": 0.5, "delta": 1e-6}
        rows_of = {"where": file.job.where, "columns": jobs.job(number)["columns"]}
        session = from_query.job_of(
            query, name, dataset="golden", source={"parquet": "data/*.parquet"}, folder=folder, **budget, **rows_of
        )
        known = {
            key: stage[key]
            for key in stage
            if key in ("partition_by", "bounds", "metrics", "partitions", "top", "best")
        }
        piped = DpAggregate(
            ledger="none", privacy_unit=jobs.job(number)["privacy_unit"], name=name, **budget, **rows_of, **known
        )
        found[name] = [digest(content(session.job)), digest(content(piped._file.job))]
    return found


def content(job: job_file.Job) -> object:
    """What the hash of a run is made of."""
    return job.model_dump(mode="json", exclude={"budget", "expect"}, exclude_defaults=True)


def statistics(folder: pathlib.Path, number: int) -> dict[str, str]:
    """Digests of the exact totals of each stage, in the order of their partitions."""
    # A name of its own: plans of a path are kept for the next engine.
    job, staged = write(folder, number, f"job-{number}.yaml"), folder / f"staged-{number}"
    staged.mkdir()
    with engines.engine(
        "local", []
    ) as engine:  # all engines have the same (tests/engines), and this one is the fastest
        found = exact.dump(job, engine, Progress(io.StringIO()), staged)
    return {
        name: value if isinstance(value, str) else digest(sorted(map(repr, value.to_pylist())))
        for name, value in found.items()
    }


def refusal(folder: pathlib.Path, given: wrong.Wrong) -> str:
    """The exit code of a wrong input, and where its message points."""
    if not (folder / "data").exists():
        rows.written(folder)
    path = folder / "job.yaml"
    path.write_text(given.text)
    said = call("plan", path, *given.options)
    return f"exit {said.code} at {places(said.err)}"


SHARES = 16
"""Of the made-up jobs one in so many is tried in each run, the others where there is time."""

PLANS, RUNS, ASKED = "plans.json", "runs.json", "asked.json"
STATISTICS, REFUSALS, RECORDS = "statistics.json", "refusals.json", "records.json"
HERE = pathlib.Path(__file__).parent


def kept(name: str) -> dict[str, object]:
    """The answers of a file beside this one."""
    known: dict[str, object] = json.loads((HERE / name).read_text())
    return known


def is_fixed(number: int) -> bool:
    """Whether a job's totals hang on no draw: no bound and no partition is chosen first, and no row of the release is ranked.

    Train stages are left to `tests/engines`, which compare their examples on all runners.
    """
    stages = jobs.job(number)["stages"].values()
    drawn = ("auto" in json.dumps([stage.get("bounds") for stage in stages])) or "within" in json.dumps(list(stages))
    rounds = any(stage.get("partitions", {}).get("private", {}).get("strategy") == "sips" for stage in stages)
    return not (drawn or rounds or any("top" in stage or stage["kind"] != "aggregate" for stage in stages))
