"""A published model in a Beam pipeline: the handler for `RunInference`.

In: the folder of a model; examples as Arrow tables or as rows. Out: a `PredictionResult` for each element: of a table a table of
predictions, of a row a mapping. Holds: the model is loaded once per worker, and loading runs none of its code; a row's
prediction depends on that row alone; types come from the model, never from rows, and a value that does not fit its column is
null. Not covered: predictions, since the guarantee of the release is about the model; windows over the rows of a unit, which
`dp-pipelines predict` computes.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from dp_pipelines.errors import RequestError
from dp_pipelines.training import artefact, scoring
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.transforms.coder import register
from dp_pipelines.transforms.release_transform import refuse_value_provider
from dp_pipelines.transforms.rows.to_tables import table_of

register()


class DpModelHandler(ModelHandler[Any, PredictionResult, Artefact]):
    """Predicts with a model that a train stage published.

    Args:
        folder: the model's folder, which every worker must be able to read.
        jax_model: for a model of your own code, `module:attribute` of the object that scores it; it must be the one that the
            model names.

    Elements are all `pa.Table` with the features' columns, or all mappings, NamedTuples or Beam rows with such names.

    Raises:
        RequestError: on loading: the folder holds no model, or a damaged one.

    >>> import apache_beam as beam
    >>> from apache_beam.ml.inference.base import RunInference
    >>> step = RunInference(DpModelHandler("out/2026-W01/returns"))
    """

    def __init__(self, folder: str | os.PathLike[str], *, jax_model: str | None = None) -> None:
        super().__init__()
        refuse_value_provider("folder", folder)
        refuse_value_provider("jax_model", jax_model)
        self._folder, self._jax_model = os.fspath(folder), jax_model

    def load_model(self) -> Artefact:
        """The model."""
        model = artefact.load(self._folder)
        scoring.own_code(model.task, self._jax_model, "jax_model")
        return model

    def run_inference(
        self, batch: Sequence[Any], model: Artefact, inference_args: dict[str, Any] | None = None
    ) -> Iterator[PredictionResult]:
        """The predictions of some elements, in their order."""
        own = scoring.own_code(model.task, self._jax_model, "jax_model")
        for element in batch:
            if isinstance(element, pa.Table):
                yield PredictionResult(element, model.predict(element, jax_model=own), self._folder)
        listed = [element for element in batch if not isinstance(element, pa.Table)]
        if listed and len(listed) < len(batch):
            raise RequestError(field="input", message="mixes tables and rows", hint="give only one kind")
        if listed:
            said = model.predict(table_of(listed, model.input_types), jax_model=own).to_pylist()
            for element, prediction in zip(listed, said, strict=True):
                yield PredictionResult(element, prediction, self._folder)

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        """The approximate size of a batch."""
        return sum(element.nbytes if isinstance(element, pa.Table) else 64 for element in batch)

    def get_metrics_namespace(self) -> str:
        """The namespace of Beam's counters."""
        return "dp_pipelines"

    def update_model_path(self, model_path: str | None = None) -> None:
        """Switch to another model."""
        self._folder = model_path or self._folder

    def validate_inference_args(self, inference_args: Mapping[str, Any] | None) -> None:
        """No arguments are accepted."""
        if inference_args:
            raise RequestError(field="inference_args", message="must be empty", hint="leave them out")
