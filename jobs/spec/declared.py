"""Models of a job file that are made from the library's dataclasses: what a field is called, holds and means is said there alone.

In: a frozen dataclass with a sentence for each field in its docstring. Out: a checked model with its fields, defaults, ranges and
descriptions; from the model the library's object, and from that what a job file would say. Holds: the library says itself what is
wrong. A whole number stays one, since the id of a run is made of what was written. Not covered: what stands in job files alone.
"""

import collections.abc
import dataclasses
import functools
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
    model_validator,
)

from dp_pipelines import checks
from dp_pipelines.jobs.spec import validation_errors
from dp_pipelines.jobs.spec.base_models import JobModel, Names, Scalar
from dp_pipelines.jobs.spec.content import Content
from dp_pipelines.metrics.over_column import AUTO
from dp_pipelines.query.feature_pairs import Pair

Held = TypeVar("Held")
Model = TypeVar("Model", bound="DeclaredFields")

_OF_TWO = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}

TYPES: dict[Any, Any] = {
    str | collections.abc.Sequence[str]: Names,
    Any: Scalar,
    Pair: Annotated[list[str], WithJsonSchema(_OF_TWO)],
}
"""What stands in a job file where the library has a type; each model that is made adds its own."""

KINDS = MappingProxyType({int: "integer", float: "number"})
"""What a JSON schema calls numbers."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeclaredField:
    """One field of a dataclass.

    Args:
        name: of the argument.
        type: its type hint.
        default: its default; `dataclasses.MISSING` where it must be given.
        description: one or more sentences, from the docstring.
    """

    name: str
    type: Any
    default: Any
    description: str


def fields(library: type) -> list[DeclaredField]:
    """What one can say to a dataclass, in the order of its arguments.

    >>> from dp_pipelines import Median
    >>> [field.name for field in fields(Median)]
    ['column', 'weight', 'stddev', 'min_value', 'max_value']
    """
    hints, described = typing.get_type_hints(library, include_extras=True), descriptions(library)
    return [
        DeclaredField(name=f.name, type=hints[f.name], default=_default(f), description=described.get(f.name, ""))
        for f in dataclasses.fields(library)
        if f.init
    ]


def descriptions(library: type) -> dict[str, str]:
    """What docstrings say of arguments, under `Args:`; what a class does not say, the classes above it do.

    >>> from dp_pipelines import Median
    >>> descriptions(Median)["column"]
    'The column.'
    """
    found: dict[str, str] = {}
    for above in reversed(library.__mro__):
        text = inspect.cleandoc(vars(above).get("__doc__") or "")
        for block in re.findall(r"^Args[^\n]*:\n((?:(?:    .*)?\n)+)", text + "\n", re.MULTILINE):
            for names, said in re.findall(r"^ {4}(\w+(?:, \w+)*): (.*(?:\n {8}.*)*)", block, re.MULTILINE):
                sentence = " ".join(said.split()).rstrip(";.") + "."
                found |= dict.fromkeys(names.split(", "), sentence[0].upper() + sentence[1:])
    return found


def first_sentence(library: type) -> str:
    """The first paragraph of a docstring."""
    return inspect.cleandoc(library.__doc__ or "").partition("\n\n")[0].replace("\n", " ")


class DeclaredFields(JobModel):
    """A part of a job file with fields of a dataclass of the library."""

    library: ClassVar[type]
    declared: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """From a key of the job file to the field of the dataclass."""
    tag: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Its `kind`, where it has one."""

    def arguments(self) -> dict[str, Any]:
        """The arguments of the dataclass."""
        return {field: _built(getattr(self, key)) for key, field in self.declared.items()}

    @classmethod
    def said(cls, held: Any) -> dict[str, Any]:
        """What a job file would say, so that the dataclass becomes what it is."""
        found = {key: said(cls.given(held, field)) for key, field in cls.declared.items()}
        return {**cls.tag, **{key: value for key, value in found.items() if value is not None}}

    @staticmethod
    def given(held: Any, field: str) -> Any:
        """What a dataclass was given for a field."""
        return getattr(held, field)


class DeclaredModel(DeclaredFields, Generic[Held]):
    """A part of a job file that is a dataclass of the library."""

    def __class_getitem__(cls, held: Any) -> Any:
        """The class itself: what it holds is for type checkers. Pydantic would make, check and build a model of each."""
        return cls

    @model_validator(mode="after")
    def _sound(self) -> "DeclaredModel[Held]":
        self.build()
        return self

    def build(self) -> Held:
        """The library's object.

        Raises:
            RequestError: what the library says.
        """
        made: Held = self.library(**self.arguments())
        return made


def said(value: Any) -> Any:
    """What a job file says where the library has a value.

    >>> from dp_pipelines import ContributionBounds
    >>> from dp_pipelines.jobs.spec.job_file import Bounds
    >>> said(ContributionBounds(max_contributions=3))
    {'max_contributions': 3}
    """
    model = TYPES.get(type(value))
    if isinstance(model, type) and issubclass(model, DeclaredFields):
        return model.said(value)
    if isinstance(value, Mapping):
        return {key: said(held) for key, held in value.items()}
    return [said(held) for held in value] if isinstance(value, list | tuple) else value


def made_of(library: type, **options: Any) -> Callable[[type[Model]], type[Model]]:
    """A class decorator: the model gets the fields of a dataclass. Options as for `model_of`; what it declares itself stays."""
    return lambda base: model_of(base, library, name=base.__name__, **options)


def model_of(
    base: type[Model],
    library: type,
    *,
    name: str,
    kind: str = "",
    only: tuple[str, ...] = (),
    leave_out: tuple[str, ...] = (),
    keys: Mapping[str, str] = MappingProxyType({}),
) -> type[Model]:
    """A model with the fields of a dataclass.

    Args:
        base: what it inherits from; its own fields stay as they are.
        library: the dataclass.
        name: of the model.
        kind: what job files call it, where it is one of several.
        only: the fields that it has; empty: all.
        leave_out: fields that no job file says here.
        keys: from a key of the job file to a field, where they differ.
    """
    of_field = {field: key for key, field in keys.items()}
    chosen = [field for field in fields(library) if field.name not in leave_out and (not only or field.name in only)]
    declared = {of_field.get(field.name, field.name): field for field in chosen}
    doc = base.__doc__ if base.__name__ == name else first_sentence(library)
    made: dict[str, Any] = {"kind": (Literal[kind], Field(description=doc))} if kind else {}
    made |= {key: _field(field) for key, field in declared.items() if key not in base.model_fields}
    model = create_model(name, __base__=base, __module__=base.__module__, __doc__=doc, **made)
    model.library = library
    model.declared = MappingProxyType({key: field.name for key, field in declared.items()})
    model.tag = MappingProxyType({"kind": kind} if kind else {})
    if not only:
        TYPES[library] = model
    return model


def _default(field: "dataclasses.Field[Any]") -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _built(value: Any) -> Any:
    if isinstance(value, DeclaredModel):
        return value.build()
    if isinstance(value, list):
        return [_built(held) for held in value]
    return {key: _built(held) for key, held in value.items()} if isinstance(value, dict) else value


def _field(field: DeclaredField) -> tuple[Any, Any]:
    """A field of a model: its type, and its default and description."""
    hint, default = in_job_file(field.type), field.default
    may_be_none = type(None) in typing.get_args(field.type)
    if default is dataclasses.MISSING or (default is None and not may_be_none):
        return hint, Field(description=field.description)
    # Of each model its own list or mapping, and of a part of the library what a job file says.
    if isinstance(default, tuple | Mapping):
        plain = said(default)
        made = functools.partial(_validator(hint), plain) if plain else type(plain)
        shown = {"default": plain} if plain else {}
        return hint, Field(default_factory=made, description=field.description, json_schema_extra=shown)
    plain = said(default)
    return hint, Field(default=default if plain is default else _validator(hint)(plain), description=field.description)


def _validator(hint: Any) -> Callable[[Any], Any]:
    """Return a function that validates what a job file says. Its adapter is made once, on use: it costs more than most models."""
    adapter = functools.cache(functools.partial(TypeAdapter, hint))
    return lambda value: adapter().validate_python(value)


def in_job_file(hint: Any) -> Any:
    """The type of a field in a job file: lists for sequences, models for dataclasses, numbers within their ranges.

    >>> in_job_file(collections.abc.Sequence[float] | None)
    list[float] | None
    """
    if hint in TYPES:
        return TYPES[hint]
    inner = typing.get_args(hint)
    match typing.get_origin(hint):
        case typing.Annotated:
            return _limited(inner[0], inner[1:])
        case types.UnionType | typing.Union:
            return _one_of(inner)
        case collections.abc.Sequence:
            return list[in_job_file(inner[0])]  # type: ignore[misc]  # made while the program runs
        case collections.abc.Mapping:
            return dict[in_job_file(inner[0]), in_job_file(inner[1])]  # type: ignore[misc]  # as above
    return hint


def _limited(held: Any, limits: tuple[Any, ...]) -> Any:
    """A type with the limits that the library declares for it, of which the library says what is wrong."""
    limited = in_job_file(held)
    for limit in limits:
        if isinstance(limit, checks.NotEmpty):
            limited = Annotated[limited, Field(min_length=1)]
        if isinstance(limit, checks.Whole | checks.Real):
            schema = WithJsonSchema({"type": KINDS[held], **limit.to_json()})
            limited = Annotated[limited, AfterValidator(functools.partial(_checked, limit)), schema]
    return limited


def _checked(limit: checks.Whole | checks.Real, value: Any) -> Any:
    """The number as it was written."""
    limit.check(value, "")
    return value


def _of_mapping(model: type["DeclaredFields"], value: Any) -> Any:
    """A mapping as a part of the job with keys of its own; all else as it is."""
    if not isinstance(value, Mapping):
        return value
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = validation_errors.from_validation(error, Content(data=value), model)
        raise min(found, key=lambda problem: problem.message != "unknown key") from None


class _AnyOf:
    """The JSON schema of one of several types, made when a schema is asked for.

    Args:
        plain: a union of types.
        models: parts of a job file.
    """

    def __init__(self, plain: Any, models: list[type[DeclaredFields]]) -> None:
        self._plain, self._models = plain, models

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        plain = TypeAdapter(self._plain).json_schema()["anyOf"]
        return {"anyOf": [*plain, *(model.model_json_schema() for model in self._models)]}


def _one_of(members: tuple[Any, ...]) -> Any:
    """One of several types. Dataclasses without a model are for Python alone."""
    known = [in_job_file(member) for member in members if member in TYPES or not dataclasses.is_dataclass(member)]
    union: Any = functools.reduce(operator.or_, known)
    tagged = [member for member in known if isinstance(member, type) and issubclass(member, DeclaredFields)]
    if Literal[AUTO] in members:
        # The library says what is wrong with it. Checked here, a whole number would become a float.
        plain = functools.reduce(operator.or_, (member for member in known if member not in tagged))
        taken: Any = Annotated[Any, _AnyOf(plain, tagged)]
        for model in tagged:
            taken = Annotated[taken, BeforeValidator(functools.partial(_of_mapping, model))]
        return taken
    return Annotated[union, Field(discriminator="kind")] if len(tagged) > 1 else union
