"""A trained model as files that anybody can read: the task, the numbers, the privacy statement; and its predictions.

In: a task, its encoder, released parameters. Out: a folder with `model.json`, `model.safetensors` and, for a linear
model, `weights.csv`; the same `Artefact` again; predictions. Holds: the files depend only on released numbers and
public facts; loading reads JSON and numbers and executes nothing; damaged or foreign files are refused by name; numbers
are restored bit for bit. Not covered: a person who changes both the files and their digest.

The user imports the object that scores a `JaxModel` and passes it in: no file decides which code runs.
"""

import contextlib
import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dp_pipelines.disk_errors import told_of_disk
from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import BinaryLabel, ClassLabel, LinearModel, Number, TrainModel
from dp_pipelines.release import staging
from dp_pipelines.training import description, scoring
from dp_pipelines.training.description import Preparation, Statement
from dp_pipelines.training.features import category_values
from dp_pipelines.training.features.encoder import Encoder

Floats = NDArray[np.float64]

FORMAT = 1
MODEL, TENSORS, WEIGHTS = "model.json", "model.safetensors", "weights.csv"
LARGEST_JSON = 64 * 2**20
LARGEST_HEADER = 2**20
"""The largest number of bytes a tensor file needs besides its numbers."""

RESULTS = PROBABILITY, PREDICTION, PROBABILITIES = "probability", "prediction", "probabilities"
"""Columns of predictions."""

BATCH_NUMBERS = 2**23
"""How many encoded numbers are in memory at a time."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Artefact:
    """A model with everything needed to use it.

    Args:
        task: what the model has learnt.
        encoder: how examples become numbers.
        parameters: of the kernel, as `training.scoring` reads them.
        whitening: the square matrix that multiplies encoded rows; None if the task does not whiten.
        privacy: the privacy statement.
        preparation: how rows of the source become examples.
        path: public numbers of each step, by name, for the learning picture: `gradient_norm`.
        weight_stddevs: of a linear model, the standard deviation that the noise of the steps gives to each weight: columns by
            outputs. None: it is not known.
        taken: what was chosen of the steps, as far as it is known: `clip_norm`, `learning_rate`, and how many of the last are
            `averaged`.

    Raises:
        RequestError: sizes do not fit the task.
    """

    task: TrainModel
    encoder: Encoder
    parameters: Floats
    whitening: Floats | None
    privacy: Statement
    preparation: Preparation = dataclasses.field(default_factory=Preparation)
    path: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    weight_stddevs: Floats | None = None
    taken: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        width = self.encoder.width
        of_weights = None if self.weight_stddevs is None else (width, self.task.label.outputs)
        for name, value, shape in (
            ("weight_stddevs", self.weight_stddevs, of_weights),
            ("parameters", self.parameters, (self.task.size,)),
            ("whitening", self.whitening, (width, width) if self.task.whiten else None),
        ):
            if (None if value is None else np.shape(value)) != shape:
                raise RequestError(field=name, message=f"must have the shape {shape}, which follows from the task")
            if value is not None:
                fixed = np.array(value, np.float64)
                if name == "whitening" and not np.isfinite(fixed).all():
                    raise RequestError(field=name, message="must be finite")
                fixed.flags.writeable = False
                object.__setattr__(self, name, fixed)
        object.__setattr__(self, "path", {name: tuple(map(float, numbers)) for name, numbers in self.path.items()})
        encoder, task = self.encoder, self.task
        if (encoder.width, encoder.label, encoder.pairs) != (task.width, task.label, task.pairs):
            raise RequestError(field="encoder", message="is not the one of the task")

    def scores(self, table: pa.Table, *, jax_model: Any = None, alone: bool = False) -> Floats:
        """The model's score of each example: a logit, a logit for each class, or a value.

        Args:
            table: examples with the features' columns.
            jax_model: for a `JaxModel`, the object that it names.
            alone: as for `scoring.scores`.

        Raises:
            RequestError: a column or the object is missing or of the wrong type.
        """
        found = [self._scores(part, jax_model, alone) for part in self._parts(table)]
        shape = (0, self.task.label.outputs) if self.task.label.outputs > 1 else (0,)
        return np.concatenate(found) if found else np.zeros(shape)

    @property
    def results(self) -> tuple[str, ...]:
        """The columns of what `predict` returns."""
        if isinstance(self.task.label, ClassLabel):
            return PREDICTION, PROBABILITY, PROBABILITIES
        return (PROBABILITY,) if isinstance(self.task.label, BinaryLabel) else (PREDICTION,)

    def predict(self, table: pa.Table, *, jax_model: Any = None) -> pa.Table:
        """The prediction for each example. Arguments and errors as for `scores`.

        Returns: for a binary label `probability`; for classes `prediction`, its `probability` and, in the order of the
            declared classes, all `probabilities`; for a number `prediction`, within its declared range.
        """
        scores, label = self.scores(table, jax_model=jax_model), self.task.label
        if isinstance(label, BinaryLabel):
            return pa.table({PROBABILITY: scoring.probabilities(self.task, scores)})
        if isinstance(label, ClassLabel):
            by_class = scoring.probabilities(self.task, scores)
            said = pa.array(by_class.argmax(axis=1) if len(by_class) else [], pa.int64())
            flat = pa.array(by_class.ravel(), pa.float64())
            return pa.table(
                {
                    PREDICTION: told_classes(label).take(said),
                    PROBABILITY: by_class.max(axis=1) if len(by_class) else pa.array([], pa.float64()),
                    PROBABILITIES: pa.FixedSizeListArray.from_arrays(flat, label.outputs).cast(pa.list_(pa.float64())),
                }
            )
        middle = (label.min_value + label.max_value) / 2
        return pa.table({PREDICTION: np.clip(np.nan_to_num(scores, nan=middle), label.min_value, label.max_value)})

    @property
    def input_types(self) -> dict[str, pa.DataType]:
        """A type for each column that the model reads, for use without a schema: the declared type.

        That of a column that is both a number and a category is the category's, whose values may be whole numbers or truths.
        """
        found: dict[str, pa.DataType] = {}
        for name, feature in self.encoder.features.items():
            if isinstance(feature, Number):
                found.setdefault(feature.column, pa.float64())
                continue
            listed = self.encoder.vocabulary[name] if feature.categories is None else feature.categories
            of = {category_values.kind_of(value) for value in listed}
            found[feature.column] = of.pop().usual if len(of) == 1 else category_values.TEXT.usual
        return found

    def linear_table(self) -> pa.Table:
        """The weights of a linear model: a row for each column that it sees, with the whitening undone.

        Beside them the standard deviation of their noise, where it is known.

        Raises:
            RequestError: it is not a linear model.
        """
        if not isinstance(self.task.model, LinearModel):
            raise RequestError(field="model", message="is not a linear model, so features have no weights")
        weights, label = self._weights, self.task.label
        names = [f"weight of {value}" for value in label.classes] if isinstance(label, ClassLabel) else ["weight"]
        columns = {name: weights[:, place] for place, name in enumerate(names)}
        if self.weight_stddevs is not None:
            stddevs = [name.replace("weight", "stddev", 1) for name in names]
            columns |= {name: self.weight_stddevs[:, place] for place, name in enumerate(stddevs)}
        return pa.table({"feature": list(self.encoder.names), **columns})

    def linear_markdown(self) -> str:
        """The weights as a readable table, to four digits. Errors as for `linear_table`."""
        table = self.linear_table()
        rows = [[_escaped(str(row[0])), *(f"{number:.4g}" for number in row[1:])] for row in _rows(table)]
        head = [_escaped(name) for name in table.column_names]
        lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
        return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)

    def save(self, folder: str | pathlib.Path) -> dict[str, pathlib.Path]:
        """Write the files. Existing ones are replaced, each as a whole.

        Args:
            folder: where to write; it is created.

        Returns:
            the path of each file, by its name.

        Raises:
            DiskError, PublishError: they cannot be written.
        """
        import safetensors.numpy

        place = pathlib.Path(folder)
        with told_of_disk(place):
            place.mkdir(parents=True, exist_ok=True)
        tensors = safetensors.numpy.save(self._tensors())
        content = {
            "format": FORMAT,
            "task": description.task_to_json(self.task),
            "encoder": self.encoder.to_json(),
            "preparation": self.preparation.to_json(),
            "privacy": self.privacy.to_json(),
            "path": {name: [_finite(number) for number in numbers] for name, numbers in self.path.items()},
            **({} if self.weight_stddevs is None else {"weight_stddevs": self.weight_stddevs.tolist()}),
            **({"taken": dict(self.taken)} if self.taken else {}),
            "tensors": {"file": TENSORS, "sha256": hashlib.sha256(tensors).hexdigest()},
        }
        text = json.dumps(content, indent=1, ensure_ascii=True, allow_nan=False) + "\n"
        files = {TENSORS: tensors, MODEL: text.encode()}
        if isinstance(self.task.model, LinearModel):
            files[WEIGHTS] = _csv(self.linear_table())
        for name, data in files.items():
            staging.write_whole(place / name, data)
        return {name: place / name for name in files}

    def _tensors(self) -> dict[str, Floats]:
        whitening = {} if self.whitening is None else {"whitening": self.whitening}
        return {"parameters": self.parameters, **whitening}

    def _parts(self, table: pa.Table) -> Iterator[pa.Table]:
        rows = max(1, BATCH_NUMBERS // self.encoder.width)
        for start in range(0, max(table.num_rows, 1), rows):
            yield table.slice(start, rows)

    @functools.cached_property
    def _weights(self) -> Floats:
        """Of a linear model, see `scoring.linear_weights`: always the same bits, since scores are counted."""
        return scoring.linear_weights(self.task, self.parameters, self.whitening)

    def _scores(self, table: pa.Table, jax_model: Any, alone: bool) -> Floats:
        if isinstance(self.task.model, LinearModel):
            found = self.encoder.products(table, self._weights)
            return found if isinstance(self.task.label, ClassLabel) else found[:, 0]
        return scoring.scores(
            self.task, self.parameters, self.whitening, self.encoder.encode(table), jax_model=jax_model, alone=alone
        )


def load(folder: str | pathlib.Path) -> Artefact:
    """Read a model without executing anything in it.

    Args:
        folder: has `model.json` and `model.safetensors`.

    Raises:
        RequestError: it is not a model, is damaged, or was made by a later version.
    """
    place = pathlib.Path(folder)
    content = _json(place / MODEL)
    try:
        if content.get("format") != FORMAT or isinstance(content.get("format"), bool):
            raise RequestError(
                field="format", message=f"is not {FORMAT}, which this version reads", hint="take a newer version"
            )
        encoder = Encoder.from_json(content.get("encoder"))
        task = description.task_from_json(content.get("task"), encoder)
        preparation = description.preparation_from_json(content.get("preparation"))
        privacy = description.statement_from_json(content.get("privacy"))
        path = _path(content.get("path"))
        stddevs, taken = _stddevs(content.get("weight_stddevs")), _taken(content.get("taken"))
        listed = content.get("tensors")
        digest = listed.get("sha256") if isinstance(listed, dict) else None
    except RequestError as error:
        raise _of_file(place / MODEL, f"cannot be used: {error.field} {error.message}", error.hint) from None
    tensors = _tensors(place / TENSORS, task, encoder.width, digest)
    try:
        return Artefact(
            task=task,
            encoder=encoder,
            parameters=tensors["parameters"],
            whitening=tensors.get("whitening"),
            privacy=privacy,
            preparation=preparation,
            path=path,
            weight_stddevs=stddevs,
            taken=taken,
        )
    except RequestError as error:
        raise _of_file(place / TENSORS, f"cannot be used: {error.field} {error.message}") from None


def _json(path: pathlib.Path) -> dict[str, Any]:
    raw = _bytes(path, LARGEST_JSON)
    try:
        content = json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise _of_file(path, "is no JSON") from None
    if not isinstance(content, dict):
        raise _of_file(path, "is no model: it must be a JSON object")
    return content


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _bytes(path: pathlib.Path, most: int) -> bytes:
    try:
        with path.open("rb") as stream:
            raw = stream.read(most + 1)
    except OSError as error:
        hint = "name the folder of a model: that of its stage in a release"
        raise _of_file(path, f"cannot be read: {error.strerror or 'no such file'}", hint) from None
    if len(raw) > most:
        raise _of_file(path, "is larger than its model can be")
    return raw


def _tensors(path: pathlib.Path, task: TrainModel, width: int, digest: Any) -> dict[str, Floats]:
    """The numbers of a model: exactly those that the task has."""
    import safetensors
    import safetensors.numpy

    shapes: dict[str, tuple[int, ...]] = {"parameters": (task.size,)}
    if task.whiten:
        shapes["whitening"] = (width, width)
    raw = _bytes(path, 8 * (task.size + width * width) + LARGEST_HEADER)
    if hashlib.sha256(raw).hexdigest() != digest:
        raise _of_file(
            path, f"is not the file that {MODEL} was written with: its SHA-256 differs", "restore both files"
        )
    try:
        found = safetensors.numpy.load(raw)
    except (safetensors.SafetensorError, ValueError, TypeError, KeyError, OverflowError):
        raise _of_file(path, "is no whole safetensors file") from None
    if {name: (value.shape, str(value.dtype)) for name, value in found.items()} != {
        name: (shape, "float64") for name, shape in shapes.items()
    }:
        raise _of_file(path, f"does not hold the numbers that {MODEL} describes")
    return {name: np.asarray(value, np.float64) for name, value in found.items()}


def _of_file(path: pathlib.Path, message: str, hint: str = "") -> RequestError:
    return RequestError(
        field=f"file {str(path)!r}", message=message, hint=hint or "take a folder that this program wrote"
    )


def _stddevs(content: Any) -> Floats | None:
    """Standard deviations of weights, which models of version 0.1.0 do not have."""
    try:
        found = None if content is None else np.array(content, np.float64)
    except (ValueError, TypeError):
        found = np.full(0, np.nan)
    if found is not None and not (np.isfinite(found).all() and found.size):
        raise RequestError(field="weight_stddevs", message="must be lists of numbers")
    return found


def _taken(content: Any) -> dict[str, float]:
    """What was chosen of the steps, which earlier versions do not say."""
    listed = {} if content is None else content
    if not isinstance(listed, dict) or not all(type(value) in (int, float) and value > 0 for value in listed.values()):
        raise RequestError(field="taken", message="must map names to positive numbers")
    return listed


def _path(content: Any) -> dict[str, tuple[float, ...]]:
    if not isinstance(content, dict) or not all(isinstance(numbers, list) for numbers in content.values()):
        raise RequestError(field="path", message="must map names to lists of numbers")
    for numbers in content.values():
        if not all(number is None or isinstance(number, (int, float)) for number in numbers):
            raise RequestError(field="path", message="must map names to lists of numbers")
    return {
        name: tuple(np.nan if number is None else float(number) for number in numbers)
        for name, numbers in content.items()
    }


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def told_classes(label: ClassLabel) -> pa.Array:
    """The declared classes as one column; as text if they are of several kinds or fit no type of whole numbers."""
    if len({type(value) for value in label.classes}) == 1:
        with contextlib.suppress(OverflowError):
            return pa.array(label.classes)
    return pa.array([str(value) for value in label.classes])


def _rows(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)


def _escaped(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "|\\`*_<>[]" else sign for sign in text).replace("\n", " ")


def _csv(table: pa.Table) -> bytes:
    import pyarrow.csv

    sink = pa.BufferOutputStream()
    pyarrow.csv.write_csv(table, sink)
    return bytes(sink.getvalue().to_pybytes())
