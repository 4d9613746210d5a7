"""Jobs over files, and what the world would see of a run: errors, words, the layout of what is staged.

In: a job and the bytes of its rows. Out: what is public about the run, and the exact sums before the noise. Holds: all steps are
those of the pipeline that `build` makes, in its order, called one after the other in this process: files are checked, read and
parsed, rows shaped and looked up, sharded, bounded, added up, merged, drawn and staged. Not covered: what a runner adds, for
which pairs go through the command line. Tests only.
"""

import dataclasses
import io
import logging
import pathlib
import random
import warnings
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest
import yaml

from dp_pipelines.errors import DpError
from dp_pipelines.jobs.request import request as requests
from dp_pipelines.jobs.request.request import Request, check
from dp_pipelines.jobs.run import build, pipelines, tables_read
from dp_pipelines.jobs.run import run as running
from dp_pipelines.jobs.runners.local import LocalGraph
from dp_pipelines.jobs.spec import job_file
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.kernels import accumulate
from dp_pipelines.planning.plan import Plan
from dp_pipelines.release import staging
from dp_pipelines.steps import read_files, release_stage, stage_rows
from dp_pipelines.steps.aggregate import ToPartials, ToShards
from dp_pipelines.steps.draw_release import DrawRelease
from tests.helpers import hostile, neighbours

SALT, SHARDS, PLACES = 0x5EED, 3, 2
NAME = "stage"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A job over one file of rows.

    Args:
        name: of the test.
        csv: whether the rows are CSV; else Parquet.
        job: what differs from the plainest job; `stage` within it is of its stage.
    """

    name: str
    csv: bool
    job: Mapping[str, Any]

    def write(self, folder: pathlib.Path) -> job_file.JobFile:
        """Write the job file and its lookup; the rows come later."""
        folder.mkdir(exist_ok=True)
        shops: dict[str, list[Any]] = {"shop": [1, 2, 2**63 - 1], "city": ["Oslo", "Bonn", "Rome"]}
        stores = pa.table({**shops, "size": [1.5, None, -2.0], "most": [4.0, 1e9, 0.5]})
        pa.parquet.write_table(stores, folder / "stores.parquet")
        (folder / "stores.csv").write_text(
            'shop,city,size,most\n1,Oslo,1.5,4\n2,"Bonn, am Rhein",,1e9\n9223372036854775807,Rome,-2,0.5\n'
        )
        (folder / "towns.csv").write_text(
            "city,flag,ward\nOslo,true,north\nOslo,true,south\nRome,false,east\nOslo,true,north\nBonn,true,west\n"
        )
        stage = {
            "kind": "aggregate",
            "partition_by": ["text"],
            "bounds": {"max_partitions_contributed": 2, "max_contributions_per_partition": 2},
            "metrics": {"rows": {"kind": "count"}, "units": {"kind": "privacy_id_count"}},
            **self.job.get("stage", {}),
        }
        source = {"csv": "rows", "types": hostile.CSV_TYPES} if self.csv else {"parquet": "rows"}
        content = {
            "dataset": "pairs",
            "privacy_unit": "who",
            "budget": {"epsilon": 30.0, "delta": 1e-5},
            **{key: value for key, value in self.job.items() if key not in ("stage", "source")},
            "source": {**source, **self.job.get("source", {})},
            "stages": {NAME: stage},
        }
        (folder / "job.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
        return job_file.load(str(folder / "job.yaml"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What a run shows, and what it must not.

    Args:
        public: everything that somebody sees but the noisy numbers.
        totals: the sums before the noise, which nobody sees.
    """

    public: Mapping[str, Any]
    totals: tuple[accumulate.Totals, ...]


class Runs:
    """Runs of one case in a folder.

    Args:
        case: the job.
        folder: an empty one.
    """

    def __init__(self, case: Case, folder: pathlib.Path) -> None:
        self.case, self.folder = case, folder
        self.file = case.write(folder)
        self._plan: Plan | None = None
        self._request: Request | None = None
        self._shape: tables_read.ShapeRows | None = None

    def seen(self, rows: bytes) -> Seen:
        """What a run over these rows shows."""
        (self.folder / "rows").write_bytes(rows)
        told = _Told()
        logging.getLogger().addHandler(told)
        staged = self.folder / f"{NAME}.parquet"
        staged.unlink(missing_ok=True)
        failure, totals = "", ()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                request = self.request()
            except DpError as error:
                failure = f"exit 2: {error}"
            else:
                try:
                    totals = self._run(request, staged)
                except Exception as error:
                    failure = f"exit 1: {pipelines.public_part(error, request, [NAME])}"
        logging.getLogger().removeHandler(told)
        public = {
            "failure": failure,
            "log": told.lines,
            "warnings": sorted(str(warning.message) for warning in warned),
            "files": sorted(path.name for path in self.folder.iterdir()),
            **(layout_of(staged, listed=self._listed) if staged.exists() else {}),
        }
        return Seen(public=public, totals=totals)

    def request(self) -> Request:
        """The checked request: of what is checked, the source alone depends on the rows' file."""
        if self._request is None:
            self._request = check(self.file, [])
        return dataclasses.replace(self._request, source=requests._source(self.file, {}))

    @property
    def _listed(self) -> bool:
        return "partitions" in self.case.job.get("stage", {})

    def stage(self, request: Request) -> Any:
        """The planned stage; planned once."""
        self._plan = self._plan or running.plan_of(self.file, request.stages)
        return self._plan[NAME]

    def _run(self, request: Request, staged: pathlib.Path) -> tuple[accumulate.Totals, ...]:
        stage = self.stage(request)
        if self._shape is None:
            self._shape = tables_read.ShapeRows(
                request.window, request.rows, request.lookup, tuple(stage.query.columns)
            )
        scale = stage_rows.ScaleValues(stage.query.scales)
        tables = [whole for t in _read(request) for piece in self._shape.process(t) for whole in scale.process(piece)]
        of_shard: dict[int, list[pa.Table]] = {}
        for number, wire in ToShards(stage.layout, SHARDS, SALT).compute(tables):
            of_shard.setdefault(number, []).append(wire)
        of_place: dict[int, list[pa.Table]] = {place: [pa.table({})] for place in range(PLACES)}
        for element in of_shard.items():
            for place, partial in ToPartials(stage, PLACES, SALT).compute(element):
                of_place[place].append(partial)
        draw, released = DrawRelease(stage, PLACES), []
        for element in of_place.items():
            released += draw.process(element)
        clamping = [column for scale in stage.query.scales for column in scale.lookups]
        joined = request.lookup.of(clamping) if request.lookup is not None else None
        join = joined.apply if joined is not None else None
        (whole,) = release_stage.Ungroup(stage, join, PLACES).process((0, [table for _, table in released]))
        staging.write_release(whole, staged, stage.query.partition_columns)
        return tuple(draw.totals(element) for element in of_place.items())


class RunsOnLocal(Runs):
    """The same by the graph of the job, on the local runner.

    Args:
        case, folder: as for `Runs`.
        threads: of the runner.
        memory: bytes that may wait in memory.
    """

    def __init__(self, case: Case, folder: pathlib.Path, *, threads: int, memory: int) -> None:
        super().__init__(case, folder)
        self._threads, self._memory = threads, memory

    def _run(self, request: Request, staged: pathlib.Path) -> tuple[accumulate.Totals, ...]:
        stage, found = self.stage(request), dict[int, accumulate.Totals]()

        class Noting(DrawRelease):
            def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[tuple[int, pa.Table]]:
                place, tables = element[0], list(element[1])
                found[place] = self.totals((place, tables))
                yield from super().process((place, tables))

        graph = LocalGraph(
            threads=self._threads, memory=self._memory, folder=self.folder, progress=Progress(io.StringIO()), files=1
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(release_stage, "DrawRelease", Noting)
            # Neighbours are runs with one salt: another one keeps other rows of everybody.
            patch.setattr(build, "entropy", SimpleNamespace(salt_number=lambda: SALT))
            files = build.build(graph.start, request, {NAME: stage}, staged.parent, {}, SHARDS)
        assert files == {staged.name: staged}
        graph.run()
        return tuple(found[place] for place in sorted(found))


class _Told(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _read(request: Request) -> Iterable[pa.Table]:
    (path,) = request.source.files
    if request.source.types is not None:
        types = {name: request.source.types[name] for name in request.columns}
        yield from read_files.ReadCsvFile(types, request.file.job.source.form, block=2**12).process(path)
        return
    for element in read_files.RowGroups().process(path):
        yield from read_files.ReadRowGroups(list(request.columns)).process(element)


def layout_of(path: pathlib.Path, *, listed: bool) -> dict[str, Any]:
    """What a file of a release shows beside its values, and, where the partitions are listed, the partitions.

    Which private partitions are there, and so the number of rows, is a release itself.
    """
    file = pa.parquet.ParquetFile(path)
    groups = [file.metadata.row_group(group) for group in range(file.num_row_groups)]
    columns = [
        (c.path_in_schema, c.physical_type, c.compression) for g in groups for c in map(g.column, range(g.num_columns))
    ]
    known = {
        "schema": str(file.schema_arrow),
        "fields": [str(file.schema.column(index)) for index in range(len(file.schema))],
        "metadata": file.schema_arrow.metadata,
        "writer": (file.metadata.created_by, file.metadata.format_version),
        "row groups": max(len(groups), 1),
        "columns": columns[: len(file.schema)] if groups else columns,
    }
    if listed:
        known["keys"] = file.read().column(0).to_pylist()
    return known if groups or listed else {**known, "columns": []}


def rows_of(case: Case, rng: random.Random, units: int = 12) -> list[Any]:
    """The rows of everybody else: for Parquet tables, for CSV lines."""
    made: list[Any] = []
    for number in range(units):
        unit = {"who": f"u{number}" if number else None, "number": number}
        if case.csv:
            made += [hostile.line_of_csv(rng, {**unit, "who": unit["who"] or ""}) for _ in range(4)]
        else:
            made.append(hostile.rows_of_parquet(rng, 4, {**unit, "who": pa.scalar(unit["who"], pa.string())}, None))
    return made


def content(case: Case, others: list[Any], rng: random.Random | None = None, longest: int = hostile.LONG) -> bytes:
    """A file of the rows of everybody else, and of Eve's where a generator of random numbers is given."""
    rows, at = (rng.choice([1, 1, 2, 5, 30]), rng.randrange(len(others) + 1)) if rng is not None else (0, 0)
    if case.csv:
        mine = hostile.lines_of_csv(rng, rows, longest) if rng is not None else []
        end = rng.choice([b"\n", b"\n", b""]) if rng is not None else b"\n"
        return b"\n".join([",".join(hostile.CSV_TYPES).encode(), *others[:at], *mine, *others[at:]]) + end
    mine = [hostile.rows_of_parquet(rng, rows, hostile.EVE, longest)] if rng is not None else []
    table = pa.concat_tables([*others[:at], *mine, *others[at:]], promote_options="permissive")
    sink = pa.BufferOutputStream()
    pa.parquet.write_table(table, sink, row_group_size=rng.choice([7, 40, 2**20]) if rng is not None else 2**20)
    return sink.getvalue().to_pybytes()


def moved_too_far(runs: Runs, without: Seen, with_unit: Seen) -> list[str]:
    """The statistics that Eve moves in more partitions, or by more, than is declared: no row of others counts otherwise."""
    if not (without.totals and with_unit.totals):
        return []
    stage = runs.stage(runs.request())
    layout, broken = stage.layout, []
    one, other = neighbours.exact(without.totals), neighbours.exact(with_unit.totals)
    for index, statistic in enumerate(stage.statistics):
        if statistic.kind not in ("rows", "units", "not_null", "sum", "clipped_sum"):
            continue
        moved = neighbours.distances({k: v[index] for k, v in one.items()}, {k: v[index] for k, v in other.items()})
        shape = statistic.shape(
            max_partitions=layout.max_partitions,
            max_rows_per_partition=layout.max_rows_per_partition,
            max_rows=layout.max_rows,
        )
        if not neighbours._within(moved, shape, shape.unit >> statistic.fine_bits):
            broken.append(statistic.name)
    return broken
