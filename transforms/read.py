"""Sources: Parquet and CSV files as a PCollection of Arrow tables of bounded size.

In: file patterns and column names. Out: tables of a few megabytes. Holds: only the requested columns are read; a damaged
file fails the pipeline with the file's name and no value. Not covered: anyone who watches the runner can see sizes and
times of reads.
"""

import dataclasses
from collections.abc import Sequence

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from dp_pipelines.engine import object_store
from dp_pipelines.errors import RequestError
from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat
from dp_pipelines.steps.read_files import csv_tables, parquet_tables
from dp_pipelines.transforms.beam_flow import BeamFlow, beginning, collection_of
from dp_pipelines.transforms.release_transform import PublicTransform


@dataclasses.dataclass(eq=False)
class ReadParquet(PublicTransform):
    """Read Parquet files as Arrow tables.

    Args:
        files: a pattern, or a list of patterns or paths, on any filesystem that Beam supports.
        columns: names of the columns to read; all by default.

    >>> ReadParquet("events/*.parquet", columns=["customer", "amount"]).columns
    ['customer', 'amount']
    """

    files: str | Sequence[str]
    columns: Sequence[str] | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, pbegin: beam.pvalue.PBegin) -> beam.PCollection[pa.Table]:
        """One element for each set of row groups that are read together, then their tables."""
        return collection_of(parquet_tables(_files(pbegin, self.files), self.columns))


@dataclasses.dataclass(eq=False)
class ReadCsv(PublicTransform):
    """Read CSV files with a header line as Arrow tables.

    Args:
        files: a pattern, or a list of patterns or paths.
        types: the type of each column to read, by name: types are public facts, never guessed from the rows. A cell that is
            not of its type is null.
        quoted: whether cells may be in quotation marks. If False, a quotation mark is an ordinary character.
        format: separator, null tokens, header, encoding, forms of numbers and times, where they are not the usual ones.

    Each line is a row, whatever it contains: the byte 0x0A always ends a line, even in quotation marks, so that an unclosed
    quotation mark cannot swallow the rows of others. A line is dropped if it is empty, has a different number of cells from
    the header, leaves a quotation mark open, is longer than 16 MiB, or has a carriage return outside quotation marks other
    than at its end. Files whose cells contain line breaks must be converted first (docs/sources/csv.md explains how).

    >>> ReadCsv("events/*.csv", types={"customer": pa.string()}).files
    'events/*.csv'
    """

    files: str | Sequence[str]
    types: dict[str, pa.DataType]
    quoted: bool = dataclasses.field(default=True, kw_only=True)
    format: CsvFormat = dataclasses.field(default=DEFAULT, kw_only=True)

    def __post_init__(self) -> None:
        super().__init__()
        if not isinstance(self.quoted, bool):
            raise RequestError(field="quoted", message="must be true or false")
        if not isinstance(self.format, CsvFormat):
            raise RequestError(
                field="format", message="must be a CsvFormat", hint='write e.g. CsvFormat(delimiter=";")'
            )

    @property
    def _form(self) -> CsvFormat:
        return self.format if self.quoted else dataclasses.replace(self.format, quote=None)

    def expand(self, pbegin: beam.pvalue.PBegin) -> beam.PCollection[pa.Table]:
        """One element per file, then its tables."""
        return collection_of(csv_tables(_files(pbegin, self.files), dict(self.types), self._form))


def matching(files: str | Sequence[str]) -> list[str]:
    """The paths that match, sorted.

    Raises:
        RequestError: a pattern matches no file.
    """
    patterns = [files] if isinstance(files, str) else list(files)
    found: set[str] = set()
    for pattern in patterns:
        paths = _matching(pattern)
        if not paths:
            raise RequestError(field=f"files {pattern!r}", message="match no files", hint="check the path")
        found.update(paths)
    return sorted(found)


def _matching(pattern: str) -> list[str]:
    if not object_store.is_object(pattern):
        (match,) = FileSystems.match([pattern])
        return [metadata.path for metadata in match.metadata_list]
    try:
        return [url for url, _ in object_store.matching(pattern)]
    except object_store.StoreError as error:
        raise RequestError(field=f"files {pattern!r}", message=error.reason, hint=error.hint) from None


def _files(pbegin: beam.pvalue.PBegin, files: str | Sequence[str]) -> BeamFlow:
    return beginning(pbegin.pipeline).known("Files", matching(files), str)
