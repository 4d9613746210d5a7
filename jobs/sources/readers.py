"""How the files of a source are read: one class for each format.

In: files, the columns that are read with their types. Out: their tables, as a flow of any engine. Holds: what a format needs
beside the names of its files is here; what is public of them was checked before (`source_files`, `declared_source`).
"""

import abc
import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa

from dp_pipelines.kernels.columns.csv_format import DEFAULT, CsvFormat
from dp_pipelines.steps import folder_columns
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.folder_columns import FolderColumns
from dp_pipelines.steps.read_files import UNKNOWN, Shuffled, csv_tables, parquet_tables

UNREADABLE = "cannot be read to its end"
"""What is wrong with a file of lines of which the disk gives no more; its lines are never wrong."""

DAMAGED_BLOCK = "a block of rows cannot be read; it is damaged"
DAMAGED_DELETES = "the list of its deleted rows cannot be read; it is damaged"
DAMAGES = (UNREADABLE, DAMAGED_BLOCK, DAMAGED_DELETES)
"""What readers say about a file that turns out to be damaged, those of extensions too: other words are not shown."""


class TableReader(abc.ABC):
    """Base of the readers of formats."""

    @abc.abstractmethod
    def tables(
        self, start: Flow, files: Sequence[str], types: Mapping[str, pa.DataType], shuffled: Shuffled = UNKNOWN
    ) -> Flow:
        """The tables of files, each file's first one without rows.

        Args:
            start: where the engine's sources begin.
            files: paths or URLs.
            types: of the columns that are read.
            shuffled: what becomes of a row.
        """


def known(start: Flow, files: Sequence[str]) -> Flow:
    """The names of files, each once."""
    return start.known("Files", sorted(set(files)), str)


@dataclasses.dataclass(frozen=True)
class ParquetReader(TableReader):
    """Reads Parquet files.

    Args:
        added: columns that they do not hold themselves.
    """

    added: FolderColumns = folder_columns.NONE

    def tables(
        self, start: Flow, files: Sequence[str], types: Mapping[str, pa.DataType], shuffled: Shuffled = UNKNOWN
    ) -> Flow:
        """See `TableReader`."""
        return parquet_tables(known(start, files), list(types), shuffled, self.added)


@dataclasses.dataclass(frozen=True)
class CsvReader(TableReader):
    """Reads CSV files.

    Args:
        form: how they are written.
        added: columns that they do not hold themselves.
    """

    form: CsvFormat = DEFAULT
    added: FolderColumns = folder_columns.NONE

    def tables(
        self, start: Flow, files: Sequence[str], types: Mapping[str, pa.DataType], shuffled: Shuffled = UNKNOWN
    ) -> Flow:
        """See `TableReader`."""
        return csv_tables(known(start, files), dict(types), self.form, shuffled, self.added)


@dataclasses.dataclass(frozen=True)
class JsonLinesReader(TableReader):
    """Reads files of JSON lines.

    Args:
        form: how dates and times are written.
        added: columns that they do not hold themselves.
    """

    form: CsvFormat = DEFAULT
    added: FolderColumns = folder_columns.NONE

    def tables(
        self, start: Flow, files: Sequence[str], types: Mapping[str, pa.DataType], shuffled: Shuffled = UNKNOWN
    ) -> Flow:
        """See `TableReader`."""
        from dp_pipelines.jobs.sources.json_lines import json_lines_tables  # loads DuckDB

        return json_lines_tables(known(start, files), types, self.form, shuffled, self.added)
