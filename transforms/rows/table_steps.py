"""Refuses steps that were written for rows and get whole Arrow tables: they would drop all rows, and nothing would say so.

In: a PCollection, whose graph is public. Out: nothing, or a refusal that names the step. Holds: only type hints and the classes
of steps are read, no element. Not covered: steps that declare with `with_output_types` that they hand on tables, and functions
whose result has no type hint where types are declared: a worker looks at what they return (`to_tables`), if it is anything.
"""

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints import native_type_compatibility, typehints

from dp_pipelines.errors import RequestError

_ROWS_INSTEAD = "make rows of the tables before it, beam.FlatMap(lambda table: table.to_pylist()), and declare types="
_ON_TABLES = "if it works on whole tables, say so: .with_output_types(pyarrow.Table)"


def refuse_steps_for_rows(pcoll: beam.PCollection[Any]) -> None:
    """Refuse an input that such a step has made, directly or some steps before.

    Args:
        pcoll: the input of a release.

    Raises:
        RequestError: a step keeps or drops whole tables, or makes one row of each.
    """
    for applied, made in _steps_on_tables(pcoll):
        _check(applied, made)


def refuse_unsaid_tables(pcoll: beam.PCollection[Any]) -> None:
    """Refuse an input of tables without declared types, if a step before may drop them all: then nothing gives their types.

    Args:
        pcoll: the input of a release.

    Raises:
        RequestError: a step has tables and returns any number of elements of any kind.
    """
    for applied, made in _steps_on_tables(pcoll):
        if typehints.Any in _plain(made) and not _is_a(applied, "Map"):
            message = "may hand on tables or drop them, and nothing says which"
            raise RequestError(
                field=f"step {applied.full_label!r}", message=message, hint=f"{_ON_TABLES}; {_ROWS_INSTEAD}"
            )


def _check(applied: Any, made: Any) -> None:
    step, is_map = applied.transform, _is_a(applied, "Map")
    kinds = _plain(made)
    if _is_a(applied, "Filter"):
        hint = "filter the rows inside of a table, beam.Map(lambda table: table.filter(pyarrow.compute.field(...) == 0)); or "
        raise _refused(applied, "keeps or drops whole tables", hint + _ROWS_INSTEAD)
    if step.get_type_hints().output_types is not None:
        return
    if kinds == [pa.Table] and (not is_map or made is not pa.Table):
        raise _refused(applied, "hands on whole tables or drops them", f"{_ROWS_INSTEAD}; {_ON_TABLES}")
    if is_map and kinds and not set(kinds) & {pa.Table, pa.RecordBatch, typehints.Any} and not _is_frame(kinds):
        raise _refused(applied, "makes one row of each table", _ROWS_INSTEAD)


def _refused(applied: Any, what: str, hint: str) -> RequestError:
    return RequestError(
        field=f"step {applied.full_label!r}",
        message=f"{what}: its elements are pyarrow tables of many rows, not rows",
        hint=hint,
    )


def _plain(hint: Any) -> list[Any]:
    """Return the types of a hint but for None."""
    hint = native_type_compatibility.convert_to_beam_type(hint)
    kinds = hint.union_types if isinstance(hint, typehints.UnionConstraint) else [hint]
    return [kind for kind in kinds if kind is not type(None)]


def _is_frame(kinds: list[Any]) -> bool:
    return any(getattr(kind, "__module__", "").partition(".")[0] == "pandas" for kind in kinds)


def _is_a(applied: Any, function: str) -> bool:
    wrapper = getattr(getattr(applied.transform.fn, "_fn", None), "__qualname__", "")  # Beam has no class for these
    return bool(wrapper.startswith(f"{function}.<locals>"))


def _steps_on_tables(pcoll: beam.PCollection[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the functions of elements that get tables, with the type hint of what they make."""
    for applied in _steps_before(pcoll):
        sources = applied.main_inputs.values()
        if isinstance(applied.transform, beam.ParDo) and any(_plain(one.element_type) == [pa.Table] for one in sources):
            for made in applied.outputs.values():
                yield applied, native_type_compatibility.convert_to_beam_type(made.element_type)


def _steps_before(pcoll: beam.PCollection[Any]) -> Iterator[Any]:
    seen: set[int] = set()
    waiting = [pcoll]
    while waiting:
        applied = waiting.pop().producer
        if applied is not None and id(applied) not in seen:
            seen.add(id(applied))
            yield applied
            waiting += applied.main_inputs.values()
