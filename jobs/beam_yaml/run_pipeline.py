"""Running a pipeline of Beam YAML in this process, silently: `python -m dp_pipelines.jobs.beam_yaml.run_pipeline PIPELINE.yaml`.

In: a pipeline file, options of Beam. Out: an exit code, as of `dp-pipelines`. Holds: while rows are in memory nothing is printed,
since errors and logs of other transforms quote them; what is told of a failure is the pipeline's own text: our errors, and the
transform and line at which Beam's reader stopped. Beam's own command (`python -m apache_beam.yaml.main`) tells everything: keep
it for made-up rows. Not covered: what other transforms of the pipeline write; templates; files that are included.
"""

import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any

import yaml

from dp_pipelines import interrupts
from dp_pipelines.errors import BudgetError, DpError, RequestError
from dp_pipelines.jobs.run.pipelines import RunFailed
from dp_pipelines.jobs.spec import yaml_lines
from dp_pipelines.jobs.spec.validation_errors import JobErrors
from dp_pipelines.jobs.terminal import output
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.jobs.terminal.silence import silence

USAGE = "usage: python -m dp_pipelines.jobs.beam_yaml.run_pipeline PIPELINE.yaml [options of Beam]"

_STOPPED = re.compile(r'(?:at|^Error applying transform|^Unconsumed error output for) "([^"\n]{1,100})" at line (\d+)')

_RELEASES = ("DpAggregate", "DpSelectPartitions")


def run(path: str, arguments: Sequence[str] = ()) -> None:
    """Build a pipeline from a file of Beam YAML and run it.

    Args:
        path: of the file.
        arguments: options of Beam.

    Raises:
        RequestError: the file, or what one of our transforms is told in it, is wrong; no row was read.
        DpError: it failed; no detail is told that may quote a row.
    """
    text = _text(path)
    with silence() as stream, Progress(stream) as progress:
        progress.show("loading Beam")
        try:
            from apache_beam.yaml import yaml_transform
        except ImportError:
            hint = "pip install 'dp-pipelines[yaml]'"
            raise RequestError(
                field="apache_beam.yaml", message="needs libraries that are not here", hint=hint
            ) from None
        from dp_pipelines.jobs.runners import engines

        with engines.engine("direct", arguments) as engine:
            pipeline = engine.pipeline(progress)
            try:
                spec = yaml.load(text, Loader=yaml_transform.SafeLineLoader)  # noqa: S506 - a safe one
                yaml_transform.expand_pipeline(pipeline, spec, pipeline_path=path)
            except Exception as error:
                raise _public(error, path) from None
            progress.show("running")
            with interrupts.watched():
                try:
                    engine.run(pipeline, progress)
                except BaseException:
                    interrupts.end_if_asked()
                    message = "the pipeline failed, and no detail is shown, since it may quote rows"
                    raise RunFailed(f"{path}: {message}; what its transforms have published until then stays") from None


def main(arguments: Sequence[str]) -> int:
    """The command. Exit codes: 0 done; 2 the request is wrong by public facts; 3 the budget refuses; 1 anything else."""
    if not arguments or arguments[0].startswith("-"):
        print(USAGE, file=sys.stderr)
        return 0 if arguments[:1] in (["-h"], ["--help"]) else 2
    try:
        run(arguments[0], arguments[1:])
    except DpError as error:
        output.note(f"error: {error}")
        return 3 if isinstance(error, BudgetError) else 2 if isinstance(error, RequestError) else 1
    return 0


def _text(path: str) -> str:
    try:
        text = pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise RequestError(field=path, message="cannot be read as text", hint="name a file of Beam YAML") from None
    document = yaml_lines.parse(text, path)
    data = document.data
    if not isinstance(data, dict) or "pipeline" not in data:
        raise RequestError(
            field=f"{path}:1", message="is no pipeline of Beam YAML", hint="write pipeline: {type: chain, ...}"
        )
    if data.get("options"):
        hint = "give them on the command line, where they are checked"
        raise RequestError(field=f"{path}: options", message="are not read here", hint=hint)
    _refuse_error_handling(document, data, ())
    return text


def _refuse_error_handling(document: yaml_lines.Document, value: Any, path: tuple[str | int, ...]) -> None:
    """Refuse the key where Beam's reader would first miss a consumer of the rows that it hands on.

    Raises:
        RequestError: one of our transforms has it.
    """
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    config = value.get("config") if isinstance(value, dict) and value.get("type") in _RELEASES else None
    if isinstance(config, dict) and "error_handling" in config:
        raise RequestError(
            field=document.named((*path, "config", "error_handling"), f"{value['type']}: error_handling"),
            message="would hand rows on as they are",
            hint="leave it out: a cell that does not fit is null here",
        )
    for key, child in children:
        _refuse_error_handling(document, child, (*path, key))


def _public(error: BaseException, path: str) -> DpError:
    """What may be told of a pipeline that could not be built: a source may have been looked at by then."""
    place = ""
    cause: Any = error
    ours: DpError | None = None
    while cause is not None:
        if isinstance(cause, DpError):
            ours = ours or cause
        elif (found := _STOPPED.search(str(cause))) is not None:
            place = f"{path}:{found[2]}: {found[1]}"
        cause = cause.__cause__ or cause.__context__
    if isinstance(ours, JobErrors):
        return JobErrors([_placed(problem, place) for problem in ours.problems])
    if isinstance(ours, RequestError):
        return _placed(ours, place)
    if ours is not None:
        return ours
    hint = "`python -m apache_beam.yaml.main` tells more; use it with made-up rows"
    return RequestError(
        field=place or path, message="cannot be built, and no more is shown, since it may quote rows", hint=hint
    )


def _placed(error: RequestError, place: str) -> RequestError:
    return type(error)(
        field=f"{place}: {error.field}" if place else error.field, message=error.message, hint=error.hint
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
