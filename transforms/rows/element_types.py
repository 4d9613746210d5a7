"""What a PCollection's type hint says about its elements: tables, rows with a schema, mappings, or nothing.

In: the type hint that Beam has. Out: an `ElementType`, or a refusal of elements that can never be rows. Holds: hints are public;
no element is looked at. Not covered: elements whose hint is Any; a worker reads what it can of them (`to_tables`).
"""

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.typehints import native_type_compatibility, row_type, typehints

from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.transforms.rows.schema_rows import arrow_schema

NO_ROWS = frozenset({tuple, list, set, frozenset, str, bytes, int, float, complex, bool})
"""Classes of elements whose values have no column names."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ElementType:
    """What is known of elements before there are any.

    Args:
        words: what they are, for messages.
        schema: the columns of rows with a schema; None: there is none.
        unreadable: columns of such rows whose Python types do not say a column type, with these types.
        is_table: whether each is an Arrow table, which needs no conversion.
        brings_types: whether they may be Arrow tables or record batches, which have types of their own.
        unsaid: whether nothing is known.
    """

    words: str
    schema: FrozenMapping[pa.DataType] | None = None
    unreadable: FrozenMapping[Any] = FrozenMapping({})
    is_table: bool = False
    brings_types: bool = False
    unsaid: bool = False


UNSAID = ElementType(words="elements without a type", brings_types=True, unsaid=True)


def element_type(pcoll: beam.PCollection[Any]) -> ElementType:
    """What the hint of a PCollection says. Errors as for `type_of_hint`."""
    return type_of_hint(pcoll.element_type)


def type_of_hint(hint: Any) -> ElementType:
    """Return what a type hint says about elements.

    Args:
        hint: a type of Python or Beam.

    Raises:
        RequestError: such elements have no column names.

    >>> type_of_hint(dict[str, int]).words
    'mappings'
    """
    hint = native_type_compatibility.convert_to_beam_type(hint)
    if isinstance(hint, typehints.UnionConstraint):  # an element that is None is a row of nulls
        inside = [one for one in hint.union_types if one is not type(None)]
        hint = inside[0] if len(inside) == 1 else Any
    if hint is None or hint in (Any, object) or isinstance(hint, (typehints.AnyTypeConstraint, typehints.TypeVariable)):
        return UNSAID
    if hint is pa.Table:
        return ElementType(words="pyarrow tables", is_table=True, brings_types=True)
    if hint is pa.RecordBatch:
        return ElementType(words="pyarrow record batches", brings_types=True)
    rows = hint if isinstance(hint, row_type.RowTypeConstraint) else row_type.RowTypeConstraint.from_user_type(hint)
    if rows is not None:
        schema, unreadable = arrow_schema(rows)
        known = FrozenMapping(dict(zip(schema.names, schema.types, strict=True)))
        return ElementType(words="rows", schema=known, unreadable=FrozenMapping(unreadable))
    if isinstance(hint, typehints.DictConstraint) or (isinstance(hint, type) and issubclass(hint, Mapping)):
        return ElementType(words="mappings")
    if isinstance(hint, type) and hint not in NO_ROWS and hint is not type(None):
        return ElementType(words="pandas frames" if is_frame_class(hint) else f"{hint.__name__} objects")
    raise no_names(str(hint) if not isinstance(hint, type) else hint.__name__)


def no_names(words: str) -> RequestError:
    """The error for elements whose values have no column names.

    Args:
        words: their type.
    """
    return RequestError(
        field="input",
        message=f"holds elements of type {words}, whose values have no column names",
        hint="name them before, e.g. beam.Map(lambda e: beam.Row(customer=e[0], amount=e[1])); for (key, value) pairs "
        "there are PrivateCountPerKey, PrivateSumPerKey and PrivateMeanPerKey",
    )


def is_frame_class(kind: type) -> bool:
    """Whether a class is that of pandas frames; pandas is not loaded for it."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and issubclass(kind, pandas.DataFrame)
