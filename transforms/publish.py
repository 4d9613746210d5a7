"""The end of a stage: one writer, then one rename.

In: released tables. Out: files that appear complete or not at all. Holds: whatever is retried, only the first complete
attempt is ever visible.
"""

import dataclasses
import os
import pathlib
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.kernels.shard import pieces
from dp_pipelines.release import manifest, staging, verdicts
from dp_pipelines.report import report
from dp_pipelines.transforms import once
from dp_pipelines.transforms.private_aggregate import PrivateAggregate


@dataclasses.dataclass
class StageRelease(beam.PTransform):
    """Write the released tables of a stage into one Parquet file of a staging folder.

    Args:
        path: of the file; its folder exists and is private. An existing file stays.
        keys: the partition columns, by which rows are sorted.

    Output: a PCollection with the path.
    """

    path: str
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pcoll: beam.PCollection[pa.Table]) -> beam.PCollection[str]:
        """Gather, then write."""
        return (
            pcoll
            | "Keyed" >> beam.ParDo(_Keyed()).with_output_types(tuple[int, pa.Table])
            | "Gather" >> beam.GroupByKey()
            | "Write" >> beam.ParDo(_Write(self.path, tuple(self.keys))).with_output_types(str)
        )


@dataclasses.dataclass
class PublishRelease(beam.PTransform):
    """Publish the output of `PrivateAggregate` as a folder, by one rename: `<stage>.parquet`, report and manifest.

    For pipelines of your own. The manifest says that no ledger remembers the release, and which further runs of the pipeline
    cannot be detected (`once.NOT_COVERED`). `dp-pipelines run` publishes the stages of a job together, outside the pipeline.

    Args:
        output: the folder; it must not exist.

    Raises:
        RequestError: when the pipeline is built: the folder exists, or the input is not the output of `PrivateAggregate`.

    >>> PublishRelease("out/weekly").output
    'out/weekly'
    """

    output: str

    def __post_init__(self) -> None:
        super().__init__()
        self._attempt = uuid.uuid4().hex

    def expand(self, pcoll: beam.PCollection[pa.Table]) -> beam.PCollection[str]:
        """Gather, stage, publish."""
        producer = pcoll.producer
        while producer is not None and not isinstance(producer.transform, PrivateAggregate):
            producer = producer.parent
        if producer is None:
            raise RequestError(
                field="input", message="is not the output of PrivateAggregate", hint="put PublishRelease right after it"
            )
        staging.refuse_existing(staging.local_path(self.output))
        stage = producer.transform.stage
        content = manifest.manifest(
            statement={**stage.statement},
            mechanisms=[record.to_json() for record in stage.mechanisms],
            privacy_unit=manifest.unit_in_words(stage.query.unit_columns),
            files={},
        )
        content["not_covered"] = [*content["not_covered"], once.NOT_COVERED]
        if stage.payment is not None and stage.statement["budget"]["runs"] > 1:
            content["round"] = stage.payment.run
        content["stages"] = manifest.stages_to_json({stage.name: stage})
        return (
            pcoll
            | "Keyed" >> beam.ParDo(_Keyed()).with_output_types(tuple[int, pa.Table])
            | "Gather" >> beam.GroupByKey()
            | "Publish"
            >> beam.ParDo(
                _Publish(self.output, stage.name, stage.query.partition_columns, {**content, "attempt": self._attempt})
            ).with_output_types(str)
        )


class _Keyed(beam.DoFn):
    def process(self, element: pa.Table) -> Iterator[tuple[int, pa.Table]]:
        yield from ((0, piece) for piece in pieces(element))


class _Write(beam.DoFn):
    def __init__(self, path: str, keys: tuple[str, ...]) -> None:
        super().__init__()
        self._path, self._keys = path, keys

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        staging.write_release(pa.concat_tables(list(element[1]), promote_options="permissive"), self._path, self._keys)
        yield self._path


class _Publish(beam.DoFn):
    def __init__(self, output: str, stage: str, keys: tuple[str, ...], content: dict[str, Any]) -> None:
        super().__init__()
        self._output, self._stage, self._keys, self._content = output, stage, keys, content

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        table = pa.concat_tables(list(element[1]), promote_options="permissive")
        if not self._published():
            with staging.staging_folder(self._output) as folder:
                whole = folder / "whole"
                whole.mkdir(mode=0o700)
                path = whole / f"{self._stage}.parquet"
                staging.write_release(table, path, self._keys)
                page = whole / "report.html"
                told = {"stages": verdicts.with_verdicts(self._content["stages"], {path.name: path})}
                page.write_text(report.render({**self._content, **told}, {self._stage: path}), encoding="utf-8")
                files = manifest.digests({path.name: path, page.name: page})
                manifest.write_manifest({**self._content, **told, "files": files}, whole)
                try:
                    staging.publish_folder(whole, self._output)
                except PublishError:
                    if not self._published():
                        raise
        yield os.fspath(pathlib.Path(self._output))

    def _published(self) -> bool:
        """Whether an earlier attempt of this pipeline has already published; if so, this one is discarded unseen."""
        visible = manifest.read_manifest(self._output)
        return visible is not None and visible.get("attempt") == self._content["attempt"]
