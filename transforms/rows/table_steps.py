"""Refuses steps that were written for rows and get whole Arrow tables: they would drop all rows, and nothing would say so.

In: a PCollection, whose graph is public. Out: nothing, or a refusal that names the step. Holds: only type hints, the classes of
steps and the names in functions' code are read, no element. A step or composite that declares tables with `with_output_types` is
believed, for all steps before it too; Beam's own composites, such as `LogElements`, lose nothing. Not covered: functions whose
result has no type hint where types are declared: a worker reads what it can of what they return (`to_tables`).
"""

import inspect
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms import ptransform
from apache_beam.typehints import native_type_compatibility, typehints

from dp_pipelines.errors import RequestError

_ROWS_INSTEAD = "make rows of the tables before it, beam.FlatMap(lambda table: table.to_pylist()), and declare types="
_TABLES = (pa.Table, pa.RecordBatch)

_OF_BEAM = tuple(f"apache_beam.transforms.{name}" for name in ("core", "util", "combiners", "stats"))
"""Modules whose composites do not drop elements; in others of Beam there are composites of the user's steps."""

_ROW_READERS = {"ReadFromParquet", "ReadAllFromParquet"}
"""Readers of Beam that make rows; the others in their module give tables, which no type hint says."""

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


def has_tables_before(pcoll: beam.PCollection[Any]) -> bool:
    """Return True if elements may be tables: the input, or one that it is made of, is of tables by its hint or by its reader."""
    seen: set[int] = set()
    waiting = [pcoll]
    while waiting:
        made = waiting.pop()
        if _are_tables(_plain(made.element_type)):
            return True
        applied = made.producer
        if applied is None or id(applied) in seen:
            continue
        seen.add(id(applied))
        readers = {type(step.transform).__name__ for step in (applied, *_around(applied)) if _is_parquet_of_beam(step)}
        if not readers:
            waiting += applied.main_inputs.values()
        elif not readers & _ROW_READERS:
            return True
    return False


def _is_parquet_of_beam(applied: Any) -> bool:
    return type(applied.transform).__module__ == "apache_beam.io.parquetio"


def _check(applied: Any, made: Any) -> None:
    step, is_map = applied.transform, _is_a(applied, "Map")
    kinds = _plain(made)
    if _is_a(applied, "Filter"):
        hint = "filter the rows inside of a table, beam.Map(lambda table: table.filter(pyarrow.compute.field(...) == 0)); or "
        raise _refused(applied, "keeps or drops whole tables", f"{hint}{_ROWS_INSTEAD}; {_ON_TABLES}")
    if step.get_type_hints().output_types is not None:
        return
    if _are_tables(kinds) and (not is_map or made not in _TABLES):
        raise _refused(applied, "hands on whole tables or drops them", f"{_ROWS_INSTEAD}; {_ON_TABLES}")
    is_row = kinds and typehints.Any not in kinds and not _has_tables(made) and not _is_frame(kinds)
    if is_map and (is_row or _makes_lists(step)):
        raise _refused(applied, "makes one row of each table", f"{_ROWS_INSTEAD}; {_ON_TABLES}")


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


def _are_tables(kinds: list[Any]) -> bool:
    return len(kinds) == 1 and kinds[0] in _TABLES


def _has_tables(hint: Any) -> bool:
    """Return True for tables, and for tuples, lists and dictionaries that contain them."""
    inside: list[Any] = []
    typehints.visit_inner_types(hint, lambda kind, found: found.append(kind), inside)
    return any(kind in _TABLES for kind in inside)


def _makes_lists(step: Any) -> bool:
    """Return True for a map to the dictionary of a table's columns, which has no type hint."""
    function = inspect.getclosurevars(step.fn._fn).nonlocals.get("fn")
    if function in (pa.Table.to_pydict, pa.RecordBatch.to_pydict):
        return True
    return getattr(getattr(function, "__code__", None), "co_names", ()) == ("to_pydict",)


def _is_frame(kinds: list[Any]) -> bool:
    return any(getattr(kind, "__module__", "").partition(".")[0] == "pandas" for kind in kinds)


def _is_a(applied: Any, function: str) -> bool:
    wrapper = getattr(getattr(applied.transform.fn, "_fn", None), "__qualname__", "")  # Beam has no class for these
    return bool(wrapper.startswith(f"{function}.<locals>"))


def _steps_on_tables(pcoll: beam.PCollection[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the functions of elements that get tables, with the type hint of what they make."""
    for applied in _steps_before(pcoll):
        sources = applied.main_inputs.values()
        is_function = isinstance(applied.transform, beam.ParDo) and not any(map(_is_of_beam, _around(applied)))
        if is_function and any(_are_tables(_plain(one.element_type)) for one in sources):
            for made in applied.outputs.values():
                yield applied, native_type_compatibility.convert_to_beam_type(made.element_type)


def _steps_before(pcoll: beam.PCollection[Any]) -> Iterator[Any]:
    """Yield the steps that made a PCollection, as far back as one that declares that it makes tables."""
    seen: set[int] = set()
    waiting = [pcoll]
    while waiting:
        made = waiting.pop()
        applied = made.producer
        if applied is None or id(applied) in seen or _declares_tables(made):
            continue
        seen.add(id(applied))
        yield applied
        waiting += applied.main_inputs.values()


def _declares_tables(made: beam.PCollection[Any]) -> bool:
    """Return True if the step that made a PCollection, or a composite around it that hands it on, says that it is of tables."""
    around = [outer for outer in _around(made.producer) if made in outer.outputs.values()]
    return any(map(_says_tables, [made.producer, *around]))


def _says_tables(applied: Any) -> bool:
    hints = applied.transform.get_type_hints()
    if isinstance(applied.transform, beam.ParDo) and _is_a(applied, "Filter"):
        hints = applied.transform._type_hints or hints.empty()  # others come from what the function takes
    if not hints.has_simple_output_type():
        return False
    return _are_tables(_plain(hints.simple_output_type(applied.full_label)))


def _around(applied: Any) -> list[Any]:
    """Return the composites that a step is in, from the inside."""
    found = []
    while (applied := applied.parent) is not None and applied.transform is not None:
        found.append(applied)
    return found


def _is_of_beam(applied: Any) -> bool:
    step = applied.transform
    maker = step._fn if isinstance(step, ptransform._PTransformFnPTransform) else type(step)
    return getattr(maker, "__module__", "") in _OF_BEAM
