"""Everything about a model but its numbers (the task, its preparation, its privacy statement), as JSON and back.

In: a `TrainModel`, its encoder; texts of a job file; public facts of a plan. Out: JSON values; the same objects again.
Holds: nothing that is read is executed; invalid content is refused with its place. Not covered: what the texts mean
(`jobs.predict.predict` binds them).
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from dp_pipelines import checks
from dp_pipelines.accounting.shown_costs import spent_number
from dp_pipelines.errors import RequestError
from dp_pipelines.frozen import FrozenMapping
from dp_pipelines.kernels.columns.csv_format import CsvFormat
from dp_pipelines.query.federate_model import FederateModel, Rounds
from dp_pipelines.query.models.pate_model import PateModel, Teachers
from dp_pipelines.query.train_model import MLP, EvaluationGroups, JaxModel, LinearModel, Model, Steps, TrainModel
from dp_pipelines.training.features import category_values
from dp_pipelines.training.features.encoder import Encoder

NOT_COVERED = (
    "predictions: what is computed from this model and one unit's rows tells about that unit, whoever gets to see it",
    "features that tell of a time after the one of the prediction: the model would look better than it can be",
)
"""What every model's statement adds to that of the release."""

_MODELS: Mapping[str, type[Model]] = {"linear": LinearModel, "mlp": MLP, "jax": JaxModel}
_PLAIN = ("max_examples_per_unit", "whiten", "held_out", "evaluation_cells", "evaluation_examples")
_LATER = ("candidates", "l2", "class_weights", "separation")
"""Fields of steps that earlier versions do not know; a model is fitted as one candidate is, and has none itself."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Preparation:
    """How rows of the source become examples, in the words of the job file; any field may be empty.

    Args:
        source: the types of the source columns that are read, by name, as Arrow writes them.
        quoted: for CSV: whether cells may be in quotation marks.
        csv: for CSV: what differs from the usual format, as `CsvFormat.to_json` gives it.
        where, columns: over one row, in SQL.
        lookup: the name of the key column, if one public table with unique keys is joined.
        lookups: what else is joined, in its order: for each table its key (`on`: columns of the rows with those of the table),
            and where they are declared `max_rows_per_key`, `types` and `csv`.
        params: the parameters of the run: type and text by name.
        unit_columns: over the rows of one unit, in SQL.
        max_rows_per_unit: the most rows of one unit that windows see.
        examples_where: which rows become examples, in SQL.
        row_id: a column of the source that tells rows of one unit apart, if the job declares one.
    """

    source: Mapping[str, str] = FrozenMapping({})
    quoted: bool = True
    where: str | None = None
    columns: Mapping[str, str] = FrozenMapping({})
    lookup: str | None = None
    params: Mapping[str, tuple[str, str]] = FrozenMapping({})
    unit_columns: Mapping[str, str] = FrozenMapping({})
    max_rows_per_unit: int | None = None
    examples_where: str | None = None
    csv: Mapping[str, Any] = FrozenMapping({})
    lookups: Sequence[Mapping[str, Any]] = ()
    row_id: str | None = None

    def __post_init__(self) -> None:
        for name in ("source", "columns", "unit_columns"):
            given = getattr(self, name)
            if not isinstance(given, Mapping) or not all(isinstance(text, str) for text in given.values()):
                raise RequestError(field=f"preparation.{name}", message="must map names to texts")
            if name != "source" and len(given) > checks.MOST_DEFINED:
                message = f"defines more than {checks.MOST_DEFINED} columns"
                raise RequestError(field=f"preparation.{name}", message=message, hint="define fewer")
            object.__setattr__(self, name, FrozenMapping(given))
        if not isinstance(self.params, Mapping):
            raise RequestError(field="preparation.params", message="must map names to types and texts")
        params = {name: tuple(value) for name, value in self.params.items()}
        if any(len(value) != 2 or not all(isinstance(text, str) for text in value) for value in params.values()):
            raise RequestError(field="preparation.params", message="must map names to types and texts")
        object.__setattr__(self, "params", FrozenMapping(params))
        for name in ("where", "lookup", "examples_where", "row_id"):
            if not isinstance(getattr(self, name), str | None):
                raise RequestError(field=f"preparation.{name}", message="must be a text")
        if not isinstance(self.quoted, bool):
            raise RequestError(field="preparation.quoted", message="must be true or false")
        if isinstance(self.lookups, str) or not isinstance(self.lookups, Sequence):
            raise RequestError(field="preparation.lookups", message="must be a list")
        for number, table in enumerate(self.lookups):
            _check_lookup(table, f"preparation.lookups.{number}")
        object.__setattr__(self, "lookups", tuple(FrozenMapping(table) for table in self.lookups))
        if not isinstance(self.csv, Mapping):
            raise RequestError(field="preparation.csv", message="must be the format of CSV files")
        object.__setattr__(self, "csv", FrozenMapping(self.csv))
        try:
            self.form  # noqa: B018 - raises
        except TypeError:
            message, hint = "has an unknown key", "use a newer version of dp_pipelines"
            raise RequestError(field="preparation.csv", message=message, hint=hint) from None
        except RequestError as error:
            raise RequestError(field=f"preparation.csv.{error.field}", message=error.message, hint=error.hint) from None
        if self.max_rows_per_unit is not None:
            checks.whole(self.max_rows_per_unit, "preparation.max_rows_per_unit", low=1, high=2**40)

    @property
    def form(self) -> CsvFormat:
        """How CSV files of the source are written."""
        form = CsvFormat(**self.csv)
        return form if self.quoted else dataclasses.replace(form, quote=None)

    @property
    def needs_units(self) -> bool:
        """Whether an example needs all rows of its unit."""
        return bool(self.unit_columns)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = {name: dict(value) if isinstance(value, Mapping) else value for name, value in fields.items()}
        plain["lookups"] = [dict(table) for table in self.lookups]
        for name in ("csv", "lookups", "row_id"):  # earlier versions do not know them
            if not plain[name]:
                del plain[name]
        plain["params"] = {name: list(value) for name, value in self.params.items()}
        return plain


def _check_lookup(table: Any, field: str) -> None:
    known = {"on": Mapping, "max_rows_per_key": int, "types": Mapping, "csv": Mapping}
    if not isinstance(table, Mapping) or not table.get("on") or not set(table) <= set(known):
        raise RequestError(field=field, message="is none that this version knows", hint="use a newer version")
    for name, value in table.items():
        if not isinstance(value, known[name]) or isinstance(value, bool):
            raise RequestError(field=f"{field}.{name}", message="is of another type than it must be")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Statement:
    """What is guaranteed, and to whom.

    Args:
        unit: the privacy unit in words.
        epsilon, delta: the computed cost of everything the plan releases in all of its runs; the model alone costs
            less.
        plan: the digest of the plan.
        not_covered: what the guarantee does not cover.
    """

    unit: str
    epsilon: float
    delta: float
    plan: str
    not_covered: Sequence[str] = NOT_COVERED

    def __post_init__(self) -> None:
        for name in ("unit", "plan"):
            if not isinstance(getattr(self, name), str):
                raise RequestError(field=f"privacy.{name}", message="must be a text")
        for name in ("epsilon", "delta"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e300:
                raise RequestError(field=f"privacy.{name}", message="must be a finite number of at least 0")
            object.__setattr__(self, name, float(value))
        if isinstance(self.not_covered, str) or not all(isinstance(text, str) for text in self.not_covered):
            raise RequestError(field="privacy.not_covered", message="must be a list of texts")
        object.__setattr__(self, "not_covered", tuple(self.not_covered))

    @property
    def words(self) -> str:
        """The guarantee as a sentence.

        >>> Statement(unit="value of customer", epsilon=1.0, delta=1e-6, plan="").words[:75]
        'adding or removing all rows of one value of customer changes the probabilit'
        """
        epsilon, delta = spent_number(self.epsilon), spent_number(self.delta)
        return (
            f"adding or removing all rows of one {self.unit} changes the probability of any outcome of all that the plan of "
            f"this model releases, in all of its runs, by at most a factor e^{epsilon}, and {delta}"
        )

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        return {**dataclasses.asdict(self), "not_covered": list(self.not_covered), "words": self.words}


def task_to_json(task: TrainModel) -> dict[str, Any]:
    """A task without its label, features and pairs, which the encoder has."""
    kind = next(kind for kind, of in _MODELS.items() if isinstance(task.model, of))
    return {
        "privacy_unit": list(task.unit_columns),
        "model": {"kind": kind, **_plain(task.model)},
        "steps": _steps_to_json(task.steps),
        **{name: getattr(task, name) for name in _PLAIN},
        **({"expected_clients": task.expected_clients} if isinstance(task, FederateModel) else {}),
        **({} if task.weighting is None else {"weighting": task.weighting}),
        **({} if task.evaluation_by is None else {"evaluation_by": _groups_to_json(task.evaluation_by)}),
    }


def _steps_to_json(steps: Steps) -> dict[str, Any]:
    """How a model is fitted, without what earlier versions do not know and was not asked for."""
    said = {name: held for name, held in _plain(steps).items() if name not in _LATER or held is not None}
    if said.get("noise") == "independent":
        del said["noise"]
    return said


def task_from_json(content: Any, encoder: Encoder) -> TrainModel:
    """The task that `task_to_json` wrote.

    Raises:
        RequestError: it is not a task.

    >>> from dp_pipelines.query.train_model import BinaryLabel, Number
    >>> task = TrainModel(privacy_unit="u", label=BinaryLabel(column="y"), model=MLP(hidden=[8]),
    ...                   features={"x": Number(column="x", min_value=0, max_value=1, edges=[0.5])})
    >>> task_from_json(task_to_json(task), Encoder.of(task)) == task
    True
    """
    try:
        model = dict(content["model"])
        kind = _MODELS[model.pop("kind")]
        own = {name: content[name] for name in ("expected_clients",) if name in content}
        library: Any = FederateModel if own else TrainModel
        fitted = Rounds if own else Steps
        if "teachers" in content["steps"]:
            library, fitted = PateModel, Teachers
        made: TrainModel = library(
            privacy_unit=content["privacy_unit"],
            label=encoder.label,
            features=encoder.features,
            pairs=encoder.pairs,
            model=kind(**model),
            steps=fitted(**content["steps"]),
            **own,
            **{name: content[name] for name in _PLAIN},
            weighting=content.get("weighting"),
            evaluation_by=_groups_from_json(content.get("evaluation_by")),
        )
        return made
    except RequestError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError):
        raise RequestError(field="task", message="is none that this version knows") from None


def _groups_to_json(by: EvaluationGroups) -> dict[str, Any]:
    return {"column": by.column, "groups": category_values.to_json(by.groups)}


def _groups_from_json(content: Any) -> EvaluationGroups | None:
    if content is None:
        return None
    return EvaluationGroups(column=content["column"], groups=category_values.from_json(content["groups"]))


def preparation_from_json(content: Any) -> Preparation:
    """Errors: RequestError as for `task_from_json`."""
    found: Preparation = _from(Preparation, content, "preparation")
    return found


def statement_from_json(content: Any) -> Statement:
    """Errors: RequestError as for `task_from_json`."""
    fields = {name: value for name, value in content.items() if name != "words"} if isinstance(content, dict) else {}
    found: Statement = _from(Statement, fields, "privacy")
    return found


def _from(kind: Any, content: Any, field: str) -> Any:
    try:
        return kind(**content)
    except RequestError:
        raise
    except (TypeError, ValueError, AttributeError):
        raise RequestError(field=field, message="is none that this version knows") from None


def _plain(described: Any) -> dict[str, Any]:
    fields = {field.name: getattr(described, field.name) for field in dataclasses.fields(described)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
