"""`dp-pipelines export`: a published model as a file for other programs, SQL or ONNX.

In: the folder of a model, a format, an output file. Out: the file, and what its reader has to know: the columns that it
takes and what they are made of. Holds: released numbers and public facts decide what is written, so it costs nothing; the
file is written completely or not at all; no code of the model runs. Not covered: the guarantee of the release, which does
not cover predictions.
"""

import argparse
import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.export import onnx_graph, sql_expression
from dp_pipelines.extensions.export.dialects import DIALECTS
from dp_pipelines.jobs.predict import predict, preprocessing
from dp_pipelines.query.train_model import Number
from dp_pipelines.release import staging
from dp_pipelines.release.manifest import MADE_UP
from dp_pipelines.training import artefact
from dp_pipelines.training.artefact import Artefact


@dataclasses.dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written.

    Args:
        model: the folder of the model.
        output: the file.
        format: of it.
        columns: the columns that it reads, each with the type that they have in training.
        defined: which of these the job defines, so that they have to be made first.
        results: what it gives.
        missing: for ONNX, what stands for a null, by column of a category.
        made_up: whether the model was trained on made-up rows.
    """

    model: pathlib.Path
    output: pathlib.Path
    format: str
    columns: Mapping[str, str]
    defined: tuple[str, ...]
    results: tuple[str, ...]
    missing: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    made_up: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        found = {"model": str(self.model), "output": str(self.output), "format": self.format}
        listed = {
            "columns": dict(self.columns),
            "defined_by_the_job": list(self.defined),
            "results": list(self.results),
        }
        missing = {"missing": dict(self.missing)} if self.missing else {}
        return {**found, **listed, **missing, **({"synthetic_model": True} if self.made_up else {})}

    @property
    def text(self) -> str:
        """Some lines for people."""
        columns = ", ".join(f"{name} ({kind})" for name, kind in self.columns.items())
        lines = [f"{self.output} gives {', '.join(self.results)}", f"it reads {columns}"]
        if self.defined:
            lines.append(f"defined by the job, so make them as its columns say: {', '.join(self.defined)}")
        lines += [f"in place of a null of {name}, write {value!r}" for name, value in self.missing.items()]
        return "\n".join([*lines, *([f"warning: {predict.WORTHLESS}"] if self.made_up else [])])


def export(given: argparse.Namespace) -> Exported:
    """Run the command.

    Args:
        given: the arguments, as `command` declares them.

    Raises:
        RequestError: the model or an argument is wrong, or the format cannot hold the model; nothing was written.
        DiskError, PublishError: the output cannot be written.
    """
    folder = predict.model_folder(given.model)
    model = artefact.load(folder)
    output = staging.local_path(given.output)
    staging.refuse_existing(output)
    content, results, missing = _FORMATS[given.format](model, given)
    with predict.private_folder(output) as beside:
        (beside / "model").write_bytes(content)
        staging.give_name(beside / "model", output)
    made = {**model.preparation.columns, **model.preparation.unit_columns}
    columns = _types(model)
    return Exported(
        model=folder,
        output=output,
        format=given.format,
        columns={name: str(kind) for name, kind in columns.items()},
        defined=tuple(name for name in columns if name in made),
        results=results,
        missing=missing,
        made_up=MADE_UP in model.privacy.not_covered,
    )


def _types(model: Artefact) -> dict[str, pa.DataType]:
    """The types of the columns that a model reads: those of the source where they are known, else the declared ones."""
    preparation = model.preparation
    made = {**preparation.columns, **preparation.unit_columns}
    known = {name: text for name, text in preparation.source.items() if name not in made}
    return {
        name: preprocessing.type_of(name, known[name]) if name in known else kind
        for name, kind in model.input_types.items()
    }


def _sql(model: Artefact, given: argparse.Namespace) -> tuple[bytes, tuple[str, ...], dict[str, Any]]:
    numbers = {feature.column for feature in model.encoder.features.values() if isinstance(feature, Number)}
    whole = [name for name, kind in _types(model).items() if name in numbers and pa.types.is_boolean(kind)]
    dialect = DIALECTS[given.dialect or "duckdb"]
    text = sql_expression.expression(model, dialect, given.result, whole=whole)
    return f"{text}\n".encode(), (given.result or sql_expression.results(model)[0],), {}


def _onnx(model: Artefact, given: argparse.Namespace) -> tuple[bytes, tuple[str, ...], dict[str, Any]]:
    for option, value in (("--dialect", given.dialect), ("--result", given.result)):
        if value is not None:
            raise RequestError(field=option, message="only applies to --format sql", hint="leave it out")
    made = onnx_graph.onnx_model(model)
    names = tuple(output.name for output in made.graph.output)
    return made.SerializeToString(deterministic=True), names, onnx_graph.missing_values(model)


_FORMATS: Mapping[str, Callable[[Artefact, argparse.Namespace], tuple[bytes, tuple[str, ...], dict[str, Any]]]] = {
    "sql": _sql,
    "onnx": _onnx,
}
