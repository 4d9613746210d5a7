"""The key `select` of a stage: `select: "SELECT region, count(*) AS orders FROM source GROUP BY ALL"`.

In: what a job says. Out: the same with the keys that somebody would write by hand in place of each statement; errors still name
the place in the statement. Holds: a job that holds no statement stays as it is and loads no parser; what stands beside a
statement and differs from what it says is refused. Not covered: what a statement means (`from_statement`).
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from dp_pipelines.errors import RequestError
from dp_pipelines.jobs.spec import yaml_lines
from dp_pipelines.jobs.spec.base_models import JobModel
from dp_pipelines.jobs.spec.content import Content, Path
from dp_pipelines.jobs.spec.stage_keys import StageKey
from dp_pipelines.jobs.spec.validation_errors import raise_all

if TYPE_CHECKING:
    from dp_pipelines.extensions.sql_select.from_statement import StatementParts

ROLLUP = "rollup"
"""What a statement may say, or its stage beside it: shares of levels have no SQL."""

SAID = ("partition_by", "metrics", "where", "having", "order_by", "limit")
"""Keys of a stage that a statement says."""

BESIDE = ("select", "clips", "settings")
"""Keys of a stage that only stand beside a statement."""

EXAMPLE = """
kind: aggregate
select: "SELECT PRODUCT, count(*) AS orders, avg(PRICE) AS price FROM source GROUP BY PRODUCT"
bounds: {max_partitions_contributed: 16, max_contributions_per_partition: 2}
clips: {PRICE: [0, 1000]}
settings: {price: {nullable: false, weight: 2}}
"""
"""A stage with the key, for the schema."""

TRIAL = "SELECT word, count(*) AS orders FROM source WHERE number > 5 GROUP BY word HAVING count(*) > 1"
"""A statement that the doctor has read."""

Range = Annotated[
    list[float | str] | dict[str, Any],
    Field(description="[low, high], or [auto, low, high] to have the bounds chosen within a range."),
]


class SelectedStage(JobModel):
    """What a stage says that is a SELECT statement, beside the keys of any aggregate."""

    select: Annotated[
        str, Field(description="A SELECT statement over the rows: FROM source. docs/sql.md has what it may hold.")
    ]
    clips: Annotated[
        dict[str, Range], Field(description="The range of the values of each column, or of each metric by its name.")
    ] = Field(default_factory=dict)
    settings: Annotated[
        dict[str, dict[str, Any]],
        Field(description="What a statement cannot say of a metric, by its name, e.g. {price: {weight: 2}}."),
    ] = Field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Origin:
    """Where something was said: in a statement, or beside it.

    Args:
        place: the path of the statement, or of what stands beside it.
        offset: of the character that says it; None for the whole.
        words: the same in words.
        beside: whether it stands beside a statement.
    """

    place: Path
    offset: int | None = None
    words: str = ""
    beside: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExpandedJob(Content):
    """What a job says, with stages in place of statements.

    Args:
        data: plain Python data.
        said: the job as it was said.
        origins: from a path to the statement that says it.
    """

    said: Content
    origins: Mapping[Path, _Origin]

    @property
    def in_file(self) -> bool:
        """As it was said."""
        return self.said.in_file

    def named(self, path: Path, field: str) -> str:
        """A place in the job as it was said: of what a statement says, the place in the statement, and what it is about."""
        for size in range(len(path), 0, -1):
            origin = self.origins.get(path[:size])
            if origin is not None and origin.beside:
                return self.said.named(origin.place, _shown(origin.place))
            if origin is not None:
                whole = _shown(origin.place)
                place = self.said.inside(origin.place, whole, origin.offset, origin.words)
                own = path[2:] if path[:1] == ("stages",) else path
                return f"{place}: {'.'.join(map(str, own))}"
        return self.said.named(path, field)

    def delimiter(self, mark: str) -> str:
        """As it was said."""
        return self.said.delimiter(mark)

    def inside(self, path: Path, field: str, offset: int | None, words: str) -> str:
        """As the job that was said names it."""
        return self.said.inside(path, field, offset, words)


def expanded(document: Content) -> Content:
    """A job without statements.

    Args:
        document: what it says.

    Returns:
        the same where it holds none.

    Raises:
        RequestError: all that is wrong with the statements, and with what stands beside them.

    >>> stage = {"kind": "aggregate", "select": "SELECT count(*) AS orders FROM source", "bounds": {"max_contributions": 3}}
    >>> job = expanded(Content(data={"privacy_unit": "customer", "stages": {"all": stage}}))
    >>> job.data["stages"]["all"]
    {'kind': 'aggregate', 'bounds': {'max_contributions': 3}, 'partition_by': [], 'metrics': {'orders': {'kind': 'count'}}}
    """
    stages = document.data.get("stages") if isinstance(document.data, Mapping) else None
    if not isinstance(stages, Mapping):
        return document
    # A model is no statement: of its stage select is an unknown key.
    found = {n: s for n, s in stages.items() if isinstance(s, Mapping) and "select" in s and s.get("kind") != "train"}
    if not found:
        return document
    job = _Job(document)
    problems: list[RequestError] = []
    for name, stage in found.items():
        try:
            job.expand(name, stage)
        except RequestError as error:
            problems.append(error)
    raise_all(problems)
    return ExpandedJob(data=job.data, said=document, origins=job.origins)


class _Job:
    """A job whose statements are replaced one by one."""

    def __init__(self, document: Content) -> None:
        self.document = document
        self.data: dict[str, Any] = {**document.data, "stages": dict(document.data["stages"])}
        self.origins: dict[Path, _Origin] = {}

    def expand(self, name: str, stage: Mapping[str, Any]) -> None:
        """Put the keys of a stage in place of its statement. Errors as for `expanded`."""
        from dp_pipelines.extensions.sql_select import from_statement  # loads DuckDB
        from dp_pipelines.extensions.sql_select.syntax import StatementError

        place: Path = ("stages", name)
        for key in SAID:
            if key in stage:
                message = "stands beside a statement, which says it"
                raise self._error((*place, key), message, "write it in the statement, or drop select")
        text = stage["select"]
        if not isinstance(text, str):
            raise self._error((*place, "select"), "must be text; put it in quotes")
        unit = self.data.get("privacy_unit", [])
        if isinstance(unit, Mapping):  # of a table each; a statement reads the rows that they become
            unit = unit.get(self._first_table(), [])
        beside = {key: self._mapping((*place, key), stage.get(key)) for key in BESIDE[1:]}
        try:
            parts = from_statement.read(
                text, unit=[unit] if isinstance(unit, str) else list(unit), clips=beside["clips"],
                settings=beside["settings"], params=list(self.data.get("params") or {}),
            )  # fmt: skip
            self._take(name, stage, parts)
        except StatementError as error:
            whole = (*place, "select")
            field = self.document.inside(whole, _shown(whole), error.offset, error.words)
            raise RequestError(field=field, message=error.message, hint=error.hint) from None
        except RequestError as error:
            if error.field.partition(".")[0] not in BESIDE:
                raise
            raise self._error((*place, *error.field.split(".")), error.message, error.hint) from None

    def _take(self, name: str, stage: Mapping[str, Any], parts: "StatementParts") -> None:
        wrong = self.document.takes_table(parts.table)
        if wrong:
            raise parts.error(("table",), f"names no table that is known here: {parts.table!r}", wrong)
        if stage.get(ROLLUP) is not None and ROLLUP in parts.stage:
            raise parts.error((ROLLUP,), "says levels, which stand in rollup beside the statement too", "say them once")
        own = {key: value for key, value in stage.items() if key not in BESIDE}
        own |= parts.stage
        if parts.where is not None:
            if len(self.data["stages"]) == 1 and self.data.get("where") is None and "unit_columns" not in stage:
                self.data["where"] = parts.where
                self._note(("where",), name, parts, ("where",))
            else:
                own["where"] = parts.where
                self._note(("stages", name, "where"), name, parts, ("where",))
        self.data["stages"][name] = own
        for path, value in parts.said.items():
            self._agree(name, path, value, parts)
        self._define(name, parts)
        for path in parts.places:
            if path[0] in (*SAID, ROLLUP):
                self._note(("stages", name, *path), name, parts, path)
        for metric, settings in (stage.get("settings") or {}).items():
            for key in settings:
                place: Path = ("stages", name, "settings", metric, key)
                self.origins["stages", name, "metrics", metric, key] = _Origin(place=place, beside=True)

    def _define(self, name: str, parts: "StatementParts") -> None:
        """Columns of a statement are columns of the job."""
        if not parts.columns:
            return
        known = self.data.get("columns") or {}
        for column, text in parts.columns.items():
            if known.get(column, text) != text:
                hint = "give this one another name with AS"
                message = f"defines column {column!r}, which the job defines in another way"
                raise parts.error(("columns", column), message, hint)
            if column not in known:
                self._note(("columns", column), name, parts, ("columns", column))
        self.data["columns"] = {**known, **parts.columns}

    def _agree(self, name: str, path: Path, value: Any, parts: "StatementParts") -> None:
        """Say what options of a statement say, where the job does not say it or says the same."""
        if path[-1] == "public_groups":
            listed = self.data["stages"][name].get("partitions") or {}
            if not {"public", "public_file"} & set(listed):
                hint = "list them under partitions: {public: ...} or public_file, or with --public-file"
                raise parts.error(path, "needs the list of public groups", hint)
            return
        at: Path = ("stages", name, *path[1:]) if path[0] == "stage" else path
        if path[0] != "stage" and len(self.data["stages"]) > 1 and path[0] == "budget":
            raise parts.error(path, f"is for the whole job: {path[-1]}", "drop it here, and write it under budget:")
        around: dict[Any, Any] = self.data
        for step in at[:-1]:
            said = around.get(step) or {}
            if not isinstance(said, Mapping):  # as in `bounds: auto`
                raise parts.error(path, f"is said beside the statement in another way: {step}", "say it once")
            around[step] = dict(said)
            around = around[step]
        held = around.get(at[-1])
        if held is not None and held != value and [held] != value:
            words = " ".join(map(str, at[2:] if path[0] == "stage" else at))
            raise parts.error(path, f"is another value than what is said beside the statement: {words}", "say it once")
        if held is None:
            around[at[-1]] = value
            self._note(at, name, parts, path)

    def _note(self, path: Path, name: str, parts: "StatementParts", own: Path) -> None:
        error = parts.error(own, "")
        self.origins[path] = _Origin(place=("stages", name, "select"), offset=error.offset, words=error.words)

    def _first_table(self) -> str:
        """The table whose names of the unit's columns rows have that are made of several."""
        join, union = self.data.get("join"), self.data.get("union")
        first = join.get("left") if isinstance(join, Mapping) else union[0] if isinstance(union, list) and union else ""
        return first if isinstance(first, str) else ""

    def _mapping(self, path: Path, value: Any) -> Mapping[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            raise self._error(path, "must be a mapping of names")
        if path[-1] == "settings" and not all(isinstance(held, Mapping) for held in value.values()):
            raise self._error(path, "must hold a mapping for each metric", "write e.g. {price: {weight: 2}}")
        return value

    def _error(self, path: Path, message: str, hint: str = "") -> RequestError:
        return RequestError(field=self.document.named(path, _shown(path)), message=message, hint=hint)


def _shown(path: Path) -> str:
    return ".".join(map(str, path))


def with_selected(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A job's JSON schema in which a stage may be a statement.

    Args:
        schema: of jobs whose stages are not.
    """
    defined = dict(schema["$defs"])
    own, selected = defined["Stage"], SelectedStage.model_json_schema()
    kept = {name: field for name, field in own["properties"].items() if name not in SAID}
    defined["SelectStage"] = {
        **own,
        "title": "SelectStage",
        "description": "One partitioned release, said as a SELECT statement.",
        "properties": {"kind": kept.pop("kind"), **selected["properties"], **kept},
        "required": ["kind", "select"],
    }
    example = yaml_lines.parse(EXAMPLE, "an example of SelectStage").data
    fields = defined["SelectStage"]["properties"]
    defined["SelectStage"]["examples"] = [example]
    defined["SelectStage"]["properties"] = fields | {
        name: {**fields[name], "examples": [value]} for name, value in example.items()
    }
    stages = schema["properties"]["stages"]
    either = {
        key: {"anyOf": [held, {"$ref": "#/$defs/SelectStage"}]} for key, held in stages["patternProperties"].items()
    }
    properties = {**schema["properties"], "stages": {**stages, "patternProperties": either}}
    return {**schema, "$defs": defined, "properties": properties}


class _Select:
    """The key `select`."""

    def replace(self, document: Content) -> Content:
        """Put the keys of a stage in place of each statement."""
        return expanded(document)

    def add_to_schema(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Add the schema of a stage with a statement."""
        return with_selected(schema)

    def budget_of(self, value: str) -> dict[str, float]:
        """Return what BigQuery's clause in a statement says of the budget."""
        from dp_pipelines.extensions.sql_select import bigquery  # loads DuckDB

        said = bigquery.said_in(value)
        return {name: said["budget", name] for name in ("epsilon", "delta") if ("budget", name) in said}

    def trials(self) -> dict[str, tuple[Callable[[], object], object]]:
        """Have one statement read, and compare its metrics."""
        from dp_pipelines.extensions.sql_select import from_statement  # loads DuckDB

        return {"SELECT": (lambda: list(from_statement.read(TRIAL, unit=["unit"]).stage["metrics"]), ["orders"])}


SELECT: StageKey = _Select()
