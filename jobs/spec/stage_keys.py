"""Keys of a stage that extensions add, and in whose place they put other keys, such as `select` with a SELECT statement.

In: the table of extensions; what a job says; the schema of jobs. Out: the same job without these keys; the schema with them.
Holds: an extension is loaded only if a stage has its key, or for the schema and the doctor; a key whose extension is not
installed is refused where it is written. Not covered: keys of other distributions; what the keys mean.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, cast, runtime_checkable

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec.content import Content

KIND = "stage_key"
"""The kind of these features in the table of extensions."""


@runtime_checkable
class StageKey(Protocol):
    """A key of a stage that stands for other keys. Importing its module must be quick, since the schema of jobs does so."""

    def replace(self, document: Content) -> Content:
        """Return a job with other keys in place of this one, in each stage that has it.

        Args:
            document: what a job says; at least one of its stages has the key.

        Raises:
            RequestError: all that is wrong with the values of the key.
        """
        ...

    def add_to_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Return a JSON schema of jobs whose stages may have the key.

        Args:
            schema: of jobs whose stages have no such key.
        """
        ...

    def budget_of(self, value: str) -> Mapping[str, float]:
        """Return the `epsilon` and `delta` that a value of the key says.

        Raises:
            RequestError: the value is wrong.
        """
        ...

    def trials(self) -> Mapping[str, tuple[Callable[[], object], object]]:
        """Return what `dp-pipelines doctor` tries: functions by kind, each with the result that it must have."""
        ...


def replace_keys(document: Content) -> Content:
    """Return a job without keys of extensions, or the same where it has none.

    Raises:
        RequestError: the extension of a key is not installed, or a value is wrong.
    """
    stages = document.data.get("stages") if isinstance(document.data, Mapping) else None
    if not isinstance(stages, Mapping):
        return document
    for key in _names():
        holder = next((name for name, stage in stages.items() if isinstance(stage, Mapping) and key in stage), None)
        if holder is not None:
            field = document.named(("stages", holder, key), f"stages.{holder}.{key}")
            document = load(key, field).replace(document)
    return document


def add_to_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON schema of jobs with the keys of all installed extensions.

    Args:
        schema: of jobs without such keys.
    """
    for key in _installed():
        schema = key.add_to_schema(schema)
    return dict(schema)


def trials() -> dict[str, tuple[Callable[[], object], object]]:
    """Return what installed extensions have the doctor try, by kind."""
    return {kind: trial for key in _installed() for kind, trial in key.trials().items()}


def load(name: str, field: str) -> StageKey:
    """Return a key by its name.

    Args:
        name: of a built-in extension.
        field: what asks for it.

    Raises:
        RequestError: its extension is not installed or is not complete; about the field.
    """
    try:
        return cast(StageKey, extensions.load(KIND, name))
    except RequestError as error:
        raise RequestError(field=field, message=error.message, hint=error.hint) from None


def _names() -> list[str]:
    """Return the names of all built-in keys, whether their extensions are installed or not."""
    prefix = f"{KIND}:"
    return [feature.removeprefix(prefix) for feature in extensions.BUILT_IN if feature.startswith(prefix)]


def _installed() -> Iterator[StageKey]:
    """Yield the keys of installed extensions. One that cannot be used is left out; a job that names it is refused."""
    for name in extensions.built_in(KIND):
        try:
            yield load(name, name)
        except RequestError:
            continue
