"""The end of a stage: one writer, then one rename.

In: released tables. Out: files that appear complete or not at all. Holds: whatever is retried, only the first complete
attempt is ever visible.
"""

import dataclasses
import os
import pathlib
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa

from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.kernels.shard import pieces
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import manifest, staging, verdicts
from dp_pipelines.report import report
from dp_pipelines.steps.write_stage import WriteStage, written
from dp_pipelines.transforms import once
from dp_pipelines.transforms.beam_flow import BeamFlow, collection_of
from dp_pipelines.transforms.private_aggregate import PrivateAggregate
from dp_pipelines.transforms.release_transform import PublicTransform


@dataclasses.dataclass(eq=False)
class StageRelease(PublicTransform):
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
        return collection_of(written(BeamFlow(pcoll), WriteStage(self.path, self.keys)))


@dataclasses.dataclass(eq=False)
class PublishRelease(PublicTransform):
    """Publish the output of `PrivateAggregate` as a folder, by one rename: `<stage>.parquet`, report and manifest.

    For pipelines of your own. The manifest says that no ledger remembers the release, and which further runs of the pipeline
    cannot be detected (`once.NOT_COVERED`). `dp-pipelines run` publishes the stages of a job together, outside the pipeline.

    Input: the output of one `PrivateAggregate`, or a tuple, list or dict of those of several stages of one plan, which are
    published together: `(weekly, daily) | PublishRelease("out")`. Output: a PCollection with the folder.

    Args:
        output: the folder; it must not exist.

    Raises:
        RequestError: when the pipeline is built: the folder exists, or another step publishes it; the input is not the output of
            `PrivateAggregate`, or the stages are of several plans.

    >>> PublishRelease("out/weekly").output
    'out/weekly'
    """

    output: str

    def __post_init__(self) -> None:
        super().__init__()
        self._attempt = uuid.uuid4().hex

    def expand(self, pcolls: Any) -> beam.PCollection[str]:
        """Gather, stage, publish."""
        given = [pcolls] if isinstance(pcolls, beam.PCollection) else _several(pcolls)
        stages = [_released_stage(pcoll) for pcoll in given]
        _refuse_several_plans(stages)
        staging.refuse_existing(staging.local_path(self.output))
        once.refuse_second_writer(given[0].pipeline, self.output)
        keyed = [
            pcoll | _label("Keyed", stage, stages) >> beam.ParDo(_OfStage(place)).with_output_types(_Gathered)
            for place, (pcoll, stage) in enumerate(zip(given, stages, strict=True))
        ]
        together = keyed[0] if len(keyed) == 1 else keyed | "Stages" >> beam.Flatten()
        tables = [(stage.name, stage.query.sorted_by) for stage in stages]
        return (
            together
            | "Gather" >> beam.GroupByKey()
            | "Publish" >> beam.ParDo(_Publish(self.output, tables, self._content(stages))).with_output_types(str)
        )

    def _content(self, stages: Sequence[StagePlan]) -> dict[str, Any]:
        """What the manifest says before anything is drawn."""
        first = stages[0]
        content = manifest.manifest(
            statement={**first.statement},
            mechanisms=[record.to_json() for record in once.records(stages)],
            privacy_unit=manifest.unit_in_words(first.query.unit_columns),
            files={},
        )
        content["not_covered"] = [*content["not_covered"], once.NOT_COVERED]
        if first.payment is not None and first.statement["budget"]["runs"] > 1:
            content["round"] = first.payment.run
        content["stages"] = manifest.stages_to_json({stage.name: stage for stage in stages})
        return {**content, "attempt": self._attempt}


_Gathered = tuple[int, tuple[int, pa.Table]]
"""A table with the place of its stage, all under one key."""


def _several(pcolls: Any) -> list[beam.PCollection[Any]]:
    given = list(pcolls.values()) if isinstance(pcolls, Mapping) else list(pcolls)
    if not given:
        raise RequestError(field="input", message="has no stage", hint="write (weekly, daily) | PublishRelease(...)")
    return given


def _label(step: str, stage: StagePlan, stages: Sequence[StagePlan]) -> str:
    return step if len(stages) == 1 else f"{step} {stage.name}"


def _released_stage(pcoll: beam.PCollection[Any]) -> StagePlan:
    """The stage of which a PCollection is the release.

    Raises:
        RequestError: it is none, or rows.
    """
    release = PrivateAggregate.producing(pcoll)
    if release is None:
        raise RequestError(
            field="input", message="is not the output of PrivateAggregate", hint="put PublishRelease right after it"
        )
    if release.as_rows:
        message, hint = "is rows, and tables are published", "drop as_rows, and put ToRows() beside PublishRelease"
        raise RequestError(field="input", message=message, hint=hint)
    return release.stage


def _refuse_several_plans(stages: Sequence[StagePlan]) -> None:
    """One manifest states one budget, and one file is of one stage.

    Raises:
        RequestError: the stages are of several plans or runs, or one of them is given twice.
    """
    names = [stage.name for stage in stages]
    payments = {None if stage.payment is None else (stage.payment.plan, stage.payment.run) for stage in stages}
    if len(payments) > 1:
        message = "are of several plans or runs, and a folder states the budget of one"
        raise RequestError(field="stages", message=message, hint="publish each in a folder of its own")
    if len(set(names)) < len(names):
        raise RequestError(field="stages", message="are given twice", hint="give each stage once")


class _OfStage(beam.DoFn):
    def __init__(self, place: int) -> None:
        super().__init__()
        self._place = place

    def process(self, element: pa.Table) -> Iterator[_Gathered]:
        yield from ((0, (self._place, piece)) for piece in pieces(element))


class _Publish(beam.DoFn):
    def __init__(self, output: str, stages: Sequence[tuple[str, tuple[str, ...]]], content: dict[str, Any]) -> None:
        super().__init__()
        self._output, self._stages, self._content = output, tuple(stages), content

    def process(self, element: tuple[int, Iterable[tuple[int, pa.Table]]]) -> Iterator[str]:
        found: list[list[pa.Table]] = [[] for _ in self._stages]
        for place, table in element[1]:
            found[place].append(table)
        if not self._published():
            with staging.staging_folder(self._output) as folder:
                whole = folder / "whole"
                whole.mkdir(mode=0o700)
                files = {}
                for (name, keys), tables in zip(self._stages, found, strict=True):
                    files[name] = whole / f"{name}.parquet"
                    released = pa.concat_tables(tables, promote_options="permissive")
                    staging.write_release(released, files[name], keys)
                listed = {path.name: path for path in files.values()}
                page = whole / "report.html"
                told = {"stages": verdicts.with_verdicts(self._content["stages"], listed)}
                page.write_text(report.render({**self._content, **told}, files), encoding="utf-8")
                digests = manifest.digests({**listed, page.name: page})
                manifest.write_manifest({**self._content, **told, "files": digests}, whole)
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
