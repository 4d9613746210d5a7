"""Pipelines whose workers see no folder of this machine: they stage into a bucket, and the driver fetches.

In: a checked request, frozen stages, a private local folder, a private folder of a bucket. Out: the staged files, in the local
folder. Holds: each attempt of a writer writes a file of its own, whole; the driver takes one and destroys the others unread; at
the end, whatever happens, nothing that was found under the run's folder is left, and what a killed driver left is destroyed by
the next attempt. Not covered: a writer that is still alive after its job has ended: what it writes then lies in the run's
folder until somebody removes it.
"""

import io
import pathlib
import uuid
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa
import pyarrow.parquet
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions

from dp_pipelines import interrupts
from dp_pipelines.disk_errors import DiskError
from dp_pipelines.errors import LedgerError
from dp_pipelines.jobs.request.request import Request
from dp_pipelines.jobs.run import build, shuffled_rows
from dp_pipelines.jobs.run.pipelines import RunFailed, public_part
from dp_pipelines.jobs.runners.engines import Engine, RunnerFailed
from dp_pipelines.jobs.terminal.progress import Progress
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.release import staging
from dp_pipelines.steps.step import Step


def run_pipeline(
    request: Request,
    stages: Mapping[str, StagePlan],
    folder: pathlib.Path,
    engine: Engine,
    progress: Progress,
    without: Mapping[str, pa.Table],
    *,
    place: str,
    job_name: str = "",
) -> dict[str, pathlib.Path]:
    """Run a pipeline that stages into a bucket; the fetched files by published name.

    Args:
        request: what to read.
        stages: what to release, by name.
        folder: the private local folder.
        engine: what runs it.
        progress: is told each step.
        without: partitions whose rows a stage does not see, by its name.
        place: the run's folder in the bucket; all that it holds is destroyed first, and at the end.
        job_name: of the job, unless an option names it.

    Raises:
        DamagedInputError, RunFailed, RunnerFailed, DiskError: it failed.
    """
    attempt = f"{place}/{staging.attempt_name()}"
    pipeline = engine.pipeline(progress, len(request.source.files), list(stages))
    named = pipeline.options.view_as(GoogleCloudOptions)
    named.job_name = named.job_name or job_name or None
    shards = build.num_shards(request, engine.given, shuffled_rows.of_stages(request, stages))
    files = build.build(engine.start(pipeline), request, stages, folder, without, shards, writer_into(attempt))
    try:
        progress.show("starting")
        destroy(place)
        engine.run(pipeline, progress)
        for path in files.values():
            fetch(attempt, path)
    except (RunnerFailed, RunFailed, LedgerError, DiskError):
        raise
    except BaseException as error:  # ours too: Beam adds to their text, and whatever it says may quote rows
        interrupts.end_if_asked()
        raise public_part(error, request, stages, folder) from None
    finally:
        try:
            destroy(place)
        except Exception:
            progress.show(f"staged files remain under {place}; the next attempt destroys them")
    return files


def writer_into(attempt: str) -> build.Writer:
    """What writes the stages of a graph into a folder of a bucket instead of a local one.

    Args:
        attempt: the folder.
    """
    return lambda path, keys: WriteElsewhere(f"{attempt}/{path.stem}", keys)


def fetch(attempt: str, path: pathlib.Path) -> None:
    """Fetch a staged file: one that is whole, of those that the attempts of its writer have left.

    Args:
        attempt: the folder of the bucket.
        path: where the file is to stand; its name says which.

    Raises:
        RunFailed: no attempt has left a whole one.
    """
    for url in _listed(f"{attempt}/{path.stem}"):
        with FileSystems.open(url) as stream:
            content = stream.read()
        try:
            pa.parquet.ParquetFile(io.BytesIO(content))
        except (pa.ArrowException, OSError, ValueError):
            continue  # of a writer that was killed, where a file system shows what is not whole
        staging.write_whole(path, content)
        return
    raise RunFailed(f"stage file {path.name!r}: was not written; nothing was published")


def destroy(place: str) -> None:
    """Remove all files under a folder of a bucket.

    Raises:
        Exception: as its file system says, if one cannot be removed.
    """
    urls = _listed(place)
    if urls:
        FileSystems.delete(urls)


def _listed(place: str) -> list[str]:
    (match,) = FileSystems.match([f"{place}/**"])
    return sorted(entry.path for entry in match.metadata_list)


class WriteElsewhere(Step):
    """Write the released tables of a stage into a folder of a bucket, as a file that no other attempt has.

    Args:
        folder: for the attempts at this file.
        keys: the partition columns, by which rows are sorted.
    """

    gives = str

    def __init__(self, folder: str, keys: tuple[str, ...]) -> None:
        self._folder, self._keys = folder, keys

    def process(self, element: tuple[int, Iterable[pa.Table]]) -> Iterator[str]:
        """Write, and tell where."""
        table = pa.concat_tables(list(element[1]), promote_options="permissive")
        content = pa.BufferOutputStream()
        pa.parquet.write_table(staging.sorted_by_key(table, self._keys), content, compression="zstd")
        url = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        with FileSystems.create(url) as stream:
            stream.write(content.getvalue().to_pybytes())
        yield url
