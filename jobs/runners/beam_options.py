"""Beam options on our command line: passed through unless they are unknown or would reveal rows.

In: the arguments that are not ours. Out: `PipelineOptions`. Holds: a misspelt option is an error, not a log line;
options that write elements, keys or programs to logs and files, or that could release a partition twice, are refused
(as known from Beam 2.77); harmful defaults of Beam are switched off.
"""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from apache_beam.options import pipeline_options

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.runners.runner_rules import refuse_key_of_job
from dp_pipelines.jobs.spec.validation_errors import nearest
from dp_pipelines.kernels.sizes import MOST_SHARDS

REFUSED = {
    "runtime_type_check": "prints row values in its errors",
    "performance_runtime_type_check": "prints row values in its errors",
    "enable_hot_key_logging": "prints keys",
    "save_main_session": "writes the program's variables to a file",
    "profile_memory": "writes memory contents to a file",
    "profiler_agent": "sends profiles of row processing elsewhere",
    "streaming": "may release a partition again when rows arrive",
    "update": "continues a job of another run",
    "output_executable_path": "writes the pipeline, with the job's parameters, to a file and runs nothing",
    "template_location": "writes the pipeline, with the job's parameters, to a file and runs nothing",
    "no_wait_until_finish": "exits before there is anything to publish",
}
"""Options, and what they do."""

LEAKING = {
    "enable_data_sampling": "copies rows out of the pipeline",
    "enable_always_on_exception_sampling": "copies rows out of the pipeline",
    "enable_heap_dump": "writes memory contents to a page of the worker",
    "enable_google_cloud_profiler": "sends profiles of row processing elsewhere",
    "enable_google_cloud_heap_sampling": "sends memory profiles elsewhere",
}
"""Experiments and service options, and what they do."""

HEAP_DUMPS = "HeapDump"
"""A string that occurs in every Java setting that writes the memory to a file."""

SWITCHED_OFF = {
    "exception sampling": (
        "--experiments=disable_always_on_exception_sampling",
        "it copies the rows on which a step fails to the runner's storage and logs",
    ),
    "saved main session": ("--no_save_main_session", "it writes the program's variables to a file"),
}
"""What Beam does by default on some runner, the option that prevents it, and why."""


class OurOptions(pipeline_options.PipelineOptions):
    """An option of ours that travels with those of Beam."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--num_shards", type=int, default=None)


class FlinkJobOptions(pipeline_options.PipelineOptions):
    """Options of Beam's Flink runner that only its Java job server knows. As a group, they are passed on."""

    @classmethod
    def _add_argparse_args(cls, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--object_reuse", action="store_true", default=None)
        parser.add_argument("--faster_copy", action="store_true", default=None)
        parser.add_argument("--execution_mode_for_batch", choices=("PIPELINED", "BATCH", "BATCH_FORCED"), default=None)


class _Parser(pipeline_options._BeamArgumentParser):
    def error(self, message: str) -> NoReturn:
        field = message.partition(":")[0].removeprefix("argument ")
        raise RequestError(field=field, message=f"is rejected by Beam: {message.partition(': ')[2] or message}")


def pipeline_options_of(arguments: Sequence[str]) -> pipeline_options.PipelineOptions:
    """Check and take Beam's options.

    Raises:
        RequestError: one is unknown, has a wrong value, or would leak rows.
    """
    parser = _Parser(allow_abbrev=False, add_help=False, argument_default=argparse.SUPPRESS)
    for group in pipeline_options.PipelineOptions.__subclasses__():
        group._add_argparse_args(parser)
    _, unknown = parser.parse_known_args(list(arguments))
    if unknown:
        known = [name for action in parser._actions for name in action.option_strings]
        given = unknown[0].partition("=")[0]
        refuse_key_of_job(given)
        hint = nearest(given, [*known, "--output", "--param", "--run-id", "--ledger", "--runner"])
        hint = hint if hint.startswith("did") else "see `dp-pipelines run --help`; write Beam's options as --name=value"
        raise RequestError(field=given, message="is neither an option of this command nor of Beam", hint=hint)
    chosen = pipeline_options.PipelineOptions(list(arguments)).get_all_options()
    for name, reason in REFUSED.items():
        if chosen.get(name):
            raise RequestError(field=f"--{name}", message=f"{reason}, and is refused", hint="leave it out")
    if not 1 <= (1 if chosen["num_shards"] is None else chosen["num_shards"]) <= MOST_SHARDS:
        raise RequestError(field="--num_shards", message=f"must be from 1 to {MOST_SHARDS}", hint="or leave it out")
    for option in ("experiments", "dataflow_service_options"):
        for said in chosen.get(option) or []:
            name = said.partition("=")[0].strip()
            if name in LEAKING:
                message = f"{LEAKING[name]}, and is refused"
                raise RequestError(field=f"--{option}={name}", message=message, hint="leave it out")
    if HEAP_DUMPS in str(chosen.get("job_server_jvm_properties") or ""):
        message = "writes memory contents to a file, and is refused"
        raise RequestError(field="--job_server_jvm_properties", message=message, hint="leave it out")
    return pipeline_options.PipelineOptions([*arguments, *(option for option, _ in SWITCHED_OFF.values())])
