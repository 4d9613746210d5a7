"""Keys that extensions add to a job file: formats of sources, and places where tables are published beside the output folder.

In: the table of extensions. Out: the keys of those that are installed, from which models get their fields; a refusal of the
others. Holds: what a key means is said in its extension alone. Not covered: what becomes of the values
(`jobs.sources.extension_reader`, `jobs.outputs.extension_output`).
"""

import contextlib
import dataclasses
import functools
from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from pydantic import TypeAdapter, create_model

from dp_pipelines import extensions
from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import example_parts

READER, OUTPUT = "reader", "output"
"""The kinds of these features in the table of extensions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SourceKey:
    """The key of `source:` that names files or a table of a format.

    Args:
        model: the type of its value: `str` for a file name or a glob, else a model with a property `pattern`, by which accounts
            know the table.
        description: its sentence in the schema.
        called: what its files are called in messages.
        types_of: what the description of `types:` calls it, if the job may declare types; empty: the files have types.
        path_key: the key of the model that holds a path relative to the job file; empty: none does.
        snapshot_keys: keys of the model that only say which snapshot is read.
        examples: by the name of a model, parts that it takes, in YAML.
    """

    model: Any
    description: str
    called: str = "its tables"
    types_of: str = ""
    path_key: str = ""
    snapshot_keys: frozenset[str] = frozenset()
    examples: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputKeys:
    """The keys of `outputs:` of one place where tables are published.

    Args:
        fields: by key, a type and its default. The first has the name of the feature, and null as its default; the others are
            options of it.
        described: what a reader of an assessment is told, before the value of the first key.
        delivered: what a command says of the tables after a run.
        examples: by the name of a model, parts that it takes, in YAML.
    """

    fields: Mapping[str, tuple[Any, Any]]
    described: str
    delivered: str
    examples: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)


Keys = TypeVar("Keys", SourceKey, OutputKeys)


def installed(kind: str, keys: type[Keys]) -> dict[str, Keys]:
    """Return the keys of the installed built-in features of a kind by name, and add their examples.

    Args:
        kind: `READER` or `OUTPUT`.
        keys: the class of what such a feature has as its attribute `keys`.
    """
    found = usable(kind, keys, extensions.built_in(kind))
    for of_feature in found.values():
        example_parts.add(of_feature.examples)
    return found


def usable(kind: str, keys: type[Keys], names: Iterable[str]) -> dict[str, Keys]:
    """Return the keys of features by name, without those that cannot be used: a job that names one is told why.

    Args:
        kind: `READER` or `OUTPUT`.
        keys: the class of what such a feature has as its attribute `keys`.
        names: of the features.
    """
    found: dict[str, Keys] = {}
    for name in names:
        with contextlib.suppress(RequestError):
            found[name] = load(kind, name, keys)
    return found


def load(kind: str, name: str, keys: type[Keys]) -> Keys:
    """Return the keys of a feature, built in or not.

    Args:
        kind: `READER` or `OUTPUT`.
        name: of the feature.
        keys: the class of its attribute `keys`.

    Raises:
        RequestError: its extension cannot be loaded, or has no such keys.
    """
    return extensions.load_checked(
        kind, name, functools.partial(_keys_of, kind, name, keys), "does not say which keys it has"
    )


def _keys_of(kind: str, name: str, keys: type[Keys], feature: object) -> Keys | None:
    """Return the keys of a feature; None if it has none. Those of other distributions must make a model."""
    found = getattr(feature, "keys", None)
    if not isinstance(found, keys) or (isinstance(found, OutputKeys) and name not in found.fields):
        return None
    if not extensions.is_built_in(kind, name):
        if isinstance(found, SourceKey):
            TypeAdapter(found.model)
        else:
            fields: dict[str, Any] = dict(found.fields)
            create_model("Outputs", **fields)
    return found


def refuse_missing(kind: str, value: Any, known: Collection[str]) -> None:
    """Refuse a key of a built-in feature whose extension is not installed, or is not complete.

    Args:
        kind: `READER` or `OUTPUT`.
        value: what the job file says, whatever it is.
        known: the keys that the model has.

    Raises:
        RequestError: as said; its field is the key.
    """
    for name in value if isinstance(value, Mapping) else ():
        if name not in known and isinstance(name, str) and extensions.is_built_in(kind, name):
            try:
                extensions.load(kind, name)
            except RequestError as error:
                raise RequestError(field=name, message=error.message, hint=error.hint) from None
