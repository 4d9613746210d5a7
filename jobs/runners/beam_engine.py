"""Builds pipelines for the requested runner, runs them and waits for them, in this process or elsewhere.

In: the name of a runner and options of Beam. Out: pipelines that know their runner; after `run` they are done. Holds: a
job server that we start ends with the run (on Linux it is killed with this process), and its temporary files are in the
attempt's private folder; an interrupted run cancels its job; a failure before the job is submitted is reported as such,
since no row was read; only `pipelines.public_part` may read any other error of Beam; the keeper of the attempt learns
the name of a job before an engine gets it. Not covered: jobs whose driver was killed (`orphaned_jobs`).
"""

import atexit
import contextlib
import copy
import dataclasses
import functools
import os
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import (
    DebugOptions,
    FlinkRunnerOptions,
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)  # fmt: skip
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.portability import python_urns
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.portability import flink_runner, portable_runner, spark_runner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.runners.portability.job_server import JavaJarJobServer, JobServer
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState
from apache_beam.runners.worker import sdk_worker_main, worker_pool_main
from apache_beam.transforms import environments
from apache_beam.utils import thread_pool_executor

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners import (
    beam_options,
    cluster_watch,
    error_masking,
    extension_runner,
    orphaned_jobs,
    processes,
    runner_rules,
)
from dp_pipelines.jobs.runners.direct import CountingRunner
from dp_pipelines.jobs.runners.engines import Engine, RunnerFailed
from dp_pipelines.jobs.terminal.progress import Progress, heard
from dp_pipelines.ledger.entries import EngineJob
from dp_pipelines.transforms.beam_flow import BeamFlow, beginning

ENDING_SOON = 10.0
"""Seconds that we wait for the end of a job that was cancelled because its run ends."""


class BeamEngine(Engine):
    """A runner of Beam and its options.

    Args:
        setup: how it is reached.
        arguments: options of Beam that were given.
    """

    def __init__(self, setup: runner_rules.Setup, arguments: Sequence[str]) -> None:
        super().__init__(setup)
        self._arguments = [*arguments, *setup.defaults]
        self._server: _Server | None = None

    @property
    def given(self) -> Mapping[str, Any]:
        """All options by name."""
        return dict(self.options.get_all_options())

    def start(self, pipeline: beam.Pipeline) -> BeamFlow:
        """Where the sources of a pipeline begin."""
        return beginning(pipeline)

    @property
    def options(self) -> PipelineOptions:
        """A new copy of Beam's options: a runner changes those that it gets, and a run may have several pipelines."""
        return beam_options.pipeline_options_of(self._arguments)

    def pipeline(self, progress: Progress, files: int = 0, stages: Sequence[str] = ()) -> beam.Pipeline:
        """An empty pipeline.

        Args:
            progress: is told each step, where the steps are in this process.
            files: how many are read.
            stages: names of the job's stages.
        """
        here = self.setup.name == "direct"
        return beam.Pipeline(
            runner=CountingRunner(progress, files, stages) if here else self.runner(), options=self.options
        )

    def runner(self) -> PipelineRunner:
        """A runner of Beam; that of `direct` without progress."""
        if runner_rules.is_elsewhere(self.setup.name):
            return extension_runner.load(self.setup.name).beam_runner()
        kinds = {"direct": FnApiRunner, "flink": _Flink, "spark": _Spark, "portable": _Portable}
        made = kinds[self.setup.name]()
        if isinstance(made, _Serving):
            made.engine = self
        return made

    def run(self, pipeline: beam.Pipeline, progress: Progress) -> None:
        """Run a pipeline of this engine to its end.

        Raises:
            RunnerFailed: the job could not be submitted; nothing was read.
            Exception: the job failed. The error may quote rows.
        """
        if self.setup.name == "direct":
            with heard(progress):
                pipeline.run().wait_until_finish()
            return
        error_masking.guard(pipeline)
        _say_nothing_at_the_end()
        job = self._named(pipeline)
        progress.show(f"submitting the job to {self.setup.name}")
        try:
            result = pipeline.run()
        except BaseException as error:
            self._end(job)
            if isinstance(error, Exception):
                raise RunnerFailed(self.setup.name, error) from None
            raise
        progress.show(f"running on {self.setup.name}")
        with cluster_watch.watch(self.setup, self.given, job.name if job is not None else "", self.tell) as watch:
            try:
                if job is not None and self._attempt is not None:
                    self._attempt.submitted(dataclasses.replace(job, job=_called(job, result)))
                result.wait_until_finish()
            except BaseException as error:
                self.lack = watch.at_the_end() if isinstance(error, Exception) else None
                with contextlib.suppress(Exception):
                    result.cancel()
                self._end(job)
                raise

    def fetch_job_server(self) -> None:
        """Download Beam's job server if it is not here yet, so that a run that cannot have it fails before it is charged.

        Raises:
            RequestError: it cannot be downloaded.
        """
        made = {"flink": _FlinkJar, "spark": _SparkJar}.get(self.setup.name)
        if made is None or self.setup.server not in ("jar", "uber"):
            return
        options = self.options
        try:
            made.local_jar(made(options).path_to_jar(), options.get_all_options().get("jar_cache_dir"))
        except (OSError, RuntimeError):  # whose texts hold addresses of package registries
            message = "cannot be downloaded, and is not here from an earlier run"
            hint = f"check the network, or give the file with --{self.setup.name}_job_server_jar"
            raise RequestError(field=f"job server of Beam for {self.setup.name}", message=message, hint=hint) from None

    def _named(self, pipeline: beam.Pipeline) -> EngineJob | None:
        """The job for a pipeline of an attempt, recorded under a unique name before any engine gets it."""
        if self._attempt is None:
            return None
        options = pipeline.options.view_as(GoogleCloudOptions)  # only Python's Beam thinks that the name is Google's
        name, elsewhere = self.setup.name, runner_rules.is_elsewhere(self.setup.name)
        if not elsewhere or not extension_runner.load(name).names_jobs_after_runs:
            options.job_name = f"{options.job_name or 'dp'}-{self._attempt.key}-{uuid.uuid4().hex[:12]}"
        job = EngineJob(name=str(options.job_name), runner=self.setup.name, endpoint=self.setup.endpoint)
        self._attempt.submitted(job)
        return job

    def _end(self, job: EngineJob | None) -> None:
        """Make sure, as far as that is quick, that a job ends which was cancelled or lost its job server."""
        if job is not None:
            with contextlib.suppress(Exception):
                orphaned_jobs.stop(job, lambda text: None, ENDING_SOON)

    def server(self, started: JobServer) -> JobServer:
        """The one job server of this run: the first that any of its pipelines wanted to start."""
        self._server = self._server or _Server(started)
        return self._server

    def close(self) -> None:
        """End what was started."""
        if self._server is not None:
            self._server.stop()


def configured(name: str, arguments: Sequence[str]) -> BeamEngine:
    """A runner with what it needs beside the options that were given. Errors as for `engines.engine`."""
    given = beam_options.pipeline_options_of(arguments).get_all_options()
    made = BeamEngine(runner_rules.setup(name, given), arguments)
    try:
        complaints = PipelineOptionsValidator(made.options, made.runner()).validate()
    except RequestError:
        raise
    except Exception:  # the validator may ask a service, and an error of its client may quote a key
        if runner_rules.is_elsewhere(name):
            raise extension_runner.load(name).unreachable() from None
        message, hint = f"cannot be checked for {name}", "see Beam's documentation"
        raise RequestError(field="options of Beam", message=message, hint=hint) from None
    for said in complaints:
        message = " ".join(str(said).split()).rstrip(".")
        raise RequestError(field="options of Beam", message=f"conflict: {message}", hint="see Beam's documentation")
    return made


@functools.cache
def _say_nothing_at_the_end() -> None:
    """Silence standard error when this process ends: worker threads may still be alive and print what they hold."""
    atexit.register(_silence_for_good)


def _silence_for_good() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _called(job: EngineJob, result: PipelineResult) -> str:
    """The engine's name for a job: from the cluster itself if we can ask it, else from the job service.

    A cluster lists a job some time after its job server accepted it, at the latest when it has ended.
    """
    found, pause = "", 0.1
    while job.endpoint.startswith("http") and not found:
        ended = PipelineState.is_terminal(result.state)
        found = getattr(orphaned_jobs.look(job), "job", "")
        if ended:
            break
        time.sleep(0 if found else pause)
        pause = min(1.2 * pause, 2.0)
    asked = getattr(result, "job_id", None)  # of services
    return str(found or (asked() if callable(asked) else getattr(result, "_job_id", "")))


class _Server(JobServer):
    """A job server that we start once and end ourselves, without handlers for signals or process exit."""

    def __init__(self, server: JobServer) -> None:
        self._server, self._service = server, None

    def start(self) -> Any:
        if self._service is None:
            self._service = self._server.start()
        return self._service

    def stop(self) -> None:
        if self._service is not None:
            self._service = None
            with contextlib.suppress(Exception):
                self._server.stop()


class _Jar(JavaJarJobServer):
    """A job server that is killed with this process, and keeps all of its files where this process keeps temporary ones."""

    _local_temp_root: str | None

    def subprocess_cmd_and_endpoint(self) -> tuple[list[str], str]:
        (launcher, *rest), endpoint = super().subprocess_cmd_and_endpoint()
        own = [f"-Djava.io.tmpdir={self._local_temp_root}", "-XX:-UsePerfData"]
        return processes.ending_with_this([launcher, *own, *rest]), endpoint

    def stop(self) -> None:
        folder, self._local_temp_root = self._local_temp_root, None
        try:
            super().stop()
        finally:
            shutil.rmtree(str(folder), ignore_errors=True)


class _FlinkJar(_Jar, flink_runner.FlinkJarJobServer):
    pass


class _SparkJar(_Jar, spark_runner.SparkJarJobServer):
    pass


LOOPBACK = "127.0.0.1"


class _Workers(worker_pool_main.BeamFnExternalWorkerPoolServicer):
    """Workers in threads of this process, each until its runner hangs up; started for programs of this machine only.

    Beam's own pool (that of 2.77, at least) also stops them by id, and every task manager counts its workers from the same
    number: the first that had nothing left to do ended a worker of another, and with it the job.
    """

    @classmethod
    def serve(cls, *, state_cache_size: int = 0, data_buffer_time_limit_ms: int = -1) -> tuple[str, grpc.Server]:
        """Start a pool at a free port of the loopback address; Beam's `start` binds every address.

        Args:
            state_cache_size: bytes, as Beam's workers take it.
            data_buffer_time_limit_ms: as Beam's workers take it.

        Returns:
            the address, and the server.
        """
        options = [("grpc.http2.max_pings_without_data", 0), ("grpc.http2.max_ping_strikes", 0)]
        server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=options)
        port = server.add_insecure_port(f"{LOOPBACK}:0")
        pool = cls(state_cache_size=state_cache_size, data_buffer_time_limit_ms=data_buffer_time_limit_ms)
        beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
        server.start()
        return f"{LOOPBACK}:{port}", server

    def StopWorker(self, stop_worker_request: Any, unused_context: Any) -> Any:
        return beam_fn_api_pb2.StopWorkerResponse()


class _Serving:
    engine: BeamEngine

    @staticmethod
    def start_and_replace_loopback_environments(pipeline: Any, options: PipelineOptions) -> list[Callable[[], Any]]:
        """As Beam does it, with workers of ours."""
        experiments = options.view_as(DebugOptions)
        if experiments.lookup_experiment("use_loopback_process_worker", False):
            return list(portable_runner.PortableRunner.start_and_replace_loopback_environments(pipeline, options))
        servers: list[Callable[[], Any]] = []
        for environment in pipeline.components.environments.values():
            if environment.urn != python_urns.EMBEDDED_PYTHON_LOOPBACK:
                continue
            chosen = copy.deepcopy(options.view_as(PortableOptions))
            chosen.environment_type = "EXTERNAL"
            chosen.environment_config, server = _Workers.serve(
                state_cache_size=sdk_worker_main._get_state_cache_size_bytes(options),
                data_buffer_time_limit_ms=sdk_worker_main._get_data_buffer_time_limit_ms(experiments.experiments or []),
            )
            servers.append(functools.partial(server.stop, 1))
            external: Any = environments.ExternalEnvironment.from_options(chosen)
            made = external.to_runner_api(None)
            environment.urn, environment.payload = made.urn, made.payload
        return servers


class _Portable(_Serving, portable_runner.PortableRunner):
    pass


class _Flink(_Serving, flink_runner.FlinkRunner):
    def default_job_server(self, options: PipelineOptions) -> JobServer:
        if self.engine.setup.server == "uber":
            return super().default_job_server(options)
        view = options.view_as(FlinkRunnerOptions)
        view.flink_master = self.add_http_scheme(view.flink_master)
        return self.engine.server(_FlinkJar(options))


class _Spark(_Serving, spark_runner.SparkRunner):
    def default_job_server(self, options: PipelineOptions) -> JobServer:
        if self.engine.setup.server == "uber":
            return super().default_job_server(options)
        return self.engine.server(_SparkJar(options))
