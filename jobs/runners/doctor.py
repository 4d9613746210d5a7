"""Checks what a run needs (Java, job server, cluster, workers, disks) before any budget is spent.

In: a runner with its options, an output, a ledger. Out: findings, each right, or wrong with a hint. Holds: no rows are
read and nothing is charged; whatever a check creates is removed again. Not covered: problems that only rows show, e.g.
that a worker's memory is too small; changes after the check.
"""

import argparse
import dataclasses
import importlib.metadata
import os
import pathlib
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.jobs.runners import cluster_checks, runner_rules
from dp_pipelines.ledger import disks
from dp_pipelines.release import staging

if TYPE_CHECKING:
    from dp_pipelines.jobs.runners.engines import Engine

CORE = {"apache-beam": "Beam", "duckdb": "DuckDB", "pyarrow": "pyarrow", "numpy": "NumPy", "pydantic": "pydantic"}
"""Packages of which other versions behaved otherwise before, and how people call them."""

OPTIONAL = (
    *("numba", "jax", "jax-privacy", "pandas", "polars", "matplotlib", "fastavro", "deltalake", "pyiceberg", "boto3"),
    *("google-cloud-storage", "google-cloud-bigquery-storage", "onnx", "mpyc", "psycopg", "pipeline-dp"),
)
"""What the extras bring, as far as this program imports it."""

OWN_MEMORY = ("tmpfs", "ramfs", "overlay")
"""Kinds of file systems that other machines cannot see."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckResult:
    """What a check found.

    Args:
        what: what was checked.
        said: the finding.
        hint: what to do; empty if all is well.
    """

    what: str
    said: str
    hint: str = ""

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return not self.hint

    @property
    def line(self) -> str:
        """One line for people.

        >>> CheckResult(what="java", said="is missing", hint="install Java 17").line
        'wrong  java: is missing; install Java 17'
        """
        return f"{'ok   ' if self.ok else 'wrong'}  {self.what}: {self.said}" + (f"; {self.hint}" if self.hint else "")


def doctor(given: argparse.Namespace, arguments: Sequence[str]) -> list[CheckResult]:
    """Everything that can be known before a run.

    Args:
        given: the options of the command.
        arguments: options of Beam.

    Raises:
        RequestError: the runner or an option is refused.
    """
    from dp_pipelines.jobs.terminal.progress import Progress
    from dp_pipelines.jobs.terminal.silence import silence

    runner_rules.check_name(given.runner)
    target = staging.local_path(given.output if given.output is not None else "dp-release")
    with silence() as stream, Progress(stream) as progress:
        progress.show("loading")
        from dp_pipelines.jobs.runners import engines

        with engines.engine(given.runner, arguments) as engine:
            if engine.setup.name == "local":
                return [*process(), *_local(engine), *cheap(engine, target), *disk(), *_ledger(given)]
            from dp_pipelines.jobs.runners import beam_options, canary

            findings = [*process(), *_switched_off(beam_options.SWITCHED_OFF)]
            progress.show("looking around")
            findings += [*cheap(engine, target), *disk(), *_ledger(given)]
            if engine.setup.name != "direct" and not given.no_probe and all(finding.ok for finding in findings):
                findings += probed(canary.probe(engine, target.parent, progress))
    return findings


def refuse_unready(engine: "Engine", target: pathlib.Path, note: Callable[[str], None]) -> None:
    """Refuse a run whose runner is not ready, before anything is charged. `local` and `direct` need nothing.

    Args:
        engine: what is to run.
        target: the folder that is to be published.
        note: says something to the user.

    Raises:
        RequestError: something is wrong; the message lists every problem.
    """
    engine.refuse_unready(target)
    if engine.setup.name in ("local", "direct"):
        return
    from dp_pipelines.jobs.runners import beam_options
    from dp_pipelines.jobs.spec.validation_errors import raise_all

    wrong = [finding for finding in cheap(engine, target) if not finding.ok]
    raise_all([RequestError(field=finding.what, message=finding.said, hint=finding.hint) for finding in wrong])
    engine.fetch_job_server()
    for name, (_, why) in beam_options.SWITCHED_OFF.items():
        note(f"{name} is switched off: {why}")


def cheap(engine: "Engine", target: pathlib.Path) -> Iterator[CheckResult]:
    """The checks that take no longer than some seconds.

    Args:
        engine: what is to run.
        target: the folder that is to be published.
    """
    setup, options = engine.setup, engine.given
    if setup.server == "jar":
        yield _finding("java", cluster_checks.java(str(options.get("job_server_java_launcher") or "java")))
    if setup.server in ("jar", "uber"):
        yield _finding("job server", cluster_checks.jar(setup.name, options))
        for name in ("job_port", "artifact_port", "expansion_port"):
            if int(options.get(name) or 0):
                yield _finding(f"port --{name}", cluster_checks.free_port(int(options[name])))
    if ":" in setup.server:
        yield _finding("job server", cluster_checks.listens(setup.server))
    if setup.master and setup.name == "flink":
        yield from (_finding("cluster", said) for said in cluster_checks.flink(setup, options))
    elif setup.master:
        yield _finding("cluster", cluster_checks.listens(setup.master))
    if setup.environment:
        yield _workers(setup)
    yield _place(setup, target)


def _finding(what: str, said: cluster_checks.Said) -> CheckResult:
    return CheckResult(what=what, said=said.said, hint=said.hint)


def _workers(setup: runner_rules.Setup) -> CheckResult:
    """Whether workers can be started, as far as this machine can tell."""
    what = f"workers ({setup.environment})"
    if setup.pool and not setup.here and runner_rules.is_here(setup.pool):
        return CheckResult(
            what=what, said=f"{setup.pool} of each task manager's machine, which cannot be checked from here"
        )
    if setup.pool:
        return _finding(what, cluster_checks.listens(setup.pool))
    if setup.command and setup.here and shutil.which(setup.command) is None:
        hint = "give the full path of an executable script: docs/runners.md"
        return CheckResult(what=what, said=f"{setup.command!r} is not a command on this machine", hint=hint)
    said = "in this process" if setup.environment == "LOOPBACK" or setup.environment in runner_rules.IN_PROCESS else ""
    return CheckResult(what=what, said=said or f"are started by {setup.command!r}")


def _place(setup: runner_rules.Setup, target: pathlib.Path) -> CheckResult:
    """Whether a release can be staged beside the output, as far as this machine can tell."""
    what = f"output {str(target)!r}"
    kind = disks.kind_of(target.parent)
    if not setup.here and kind in OWN_MEMORY:
        hint = "choose a folder on a disk that all machines share"
        return CheckResult(
            what=what, said=f"is on {kind}, which no other machine can see; {runner_rules.SHARED}", hint=hint
        )
    try:
        with (
            cluster_checks.there_meanwhile(target.parent),
            tempfile.TemporaryDirectory(prefix=".dp-doctor-", dir=target.parent) as folder,
        ):
            staged = pathlib.Path(folder) / "staged"
            staged.write_bytes(b"x")
            os.link(staged, staged.with_name("linked"))
            staged.with_name("linked").rename(staged.with_name("renamed"))
    except OSError as error:
        said = f"cannot be staged there: {error.strerror or 'the file system refuses'}"
        return CheckResult(
            what=what, said=said, hint="choose a folder where this user may write, on a disk that supports links"
        )
    shared = "" if setup.here else f"; {runner_rules.SHARED}"
    return CheckResult(what=what, said=f"can be staged and published ({kind or 'unknown file system'}){shared}")


def disk() -> Iterator[CheckResult]:
    """The disk for temporary files."""
    folder = tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    said = f"{free / 2**30:.1f} GiB are free"
    few = "set TMPDIR to a folder on a larger disk" if free < cluster_checks.LEAST_TEMPORARY else ""
    yield CheckResult(what=f"temporary files in {folder!r}", said=said, hint=few)


def process() -> Iterator[CheckResult]:
    """Check the packages of this process: their versions, and whether DuckDB answers expressions as expected."""
    from dp_pipelines import __version__
    from dp_pipelines.jobs.spec import stage_keys
    from dp_pipelines.jobs.sql import trial_expressions

    core = [f"{name} {importlib.metadata.version(package)}" for package, name in CORE.items()]
    said = ", ".join([f"dp-pipelines {__version__}", f"Python {platform.python_version()}", *core])
    yield CheckResult(what="this process", said=said)
    optional = [f"{package} {version}" for package in OPTIONAL if (version := _version(package))]
    yield CheckResult(what="optional packages", said=", ".join(optional) or "none")
    what, wrong = "SQL expressions", trial_expressions.unexpected(stage_keys.trials())
    if wrong:
        said = f"are not answered as expected: {', '.join(wrong)}"
        hint = "install a version of DuckDB that was tried: requirements-newest.lock"
        yield CheckResult(what=what, said=said, hint=hint)
    else:
        yield CheckResult(what=what, said="one of each kind is answered as expected")


def _version(package: str) -> str:
    """Return the installed version of a package, or "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _local(engine: "Engine") -> Iterator[CheckResult]:
    said = engine.given
    yield CheckResult(what="threads", said=str(said["parallelism"]))
    yield CheckResult(what="memory", said=f"up to {int(said['memory']) / 2**30:.1f} GiB; what is beyond goes to a disk")


def _switched_off(switched_off: dict[str, tuple[str, str]]) -> Iterator[CheckResult]:
    for name, (_, why) in switched_off.items():
        yield CheckResult(what=name, said=f"switched off, because {why}")


def _ledger(given: argparse.Namespace) -> Iterator[CheckResult]:
    """The place of the ledger."""
    url = given.ledger
    if url == "none" or (url is None and given.job is None):
        return
    from dp_pipelines.ledger import default_places
    from dp_pipelines.ledger.ledger import Ledger

    place = default_places.beside(pathlib.Path(given.job)) if url is None else url
    shown = place.rpartition("@")[2] if "://" in place else place  # without a password
    what = f"ledger {shown!r}"
    try:
        if url is not None or Ledger.exists(place) or Ledger.was_seen(place):
            Ledger.open(place, anchor=given.anchor).close()
            yield CheckResult(what=what, said="can be opened")
        else:
            disks.refuse_network(pathlib.Path(place))
            writable = os.access(pathlib.Path(place).parent, os.W_OK)
            hint = "" if writable else "name another one with --ledger, or give this user write permission there"
            yield CheckResult(
                what=what, said="will be created by the first run" if writable else "cannot be created", hint=hint
            )
    except RequestError as error:
        yield CheckResult(what=what, said=error.message, hint=error.hint or "see docs/ledger.md")
    except DpError as error:
        yield CheckResult(what=what, said=str(error), hint="see docs/ledger.md")


def probed(said: Sequence[cluster_checks.Said]) -> list[CheckResult]:
    """The findings of a small job on the runner."""
    return [_finding("a small job", one) for one in said]
