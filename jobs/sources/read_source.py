"""The rows of a source, whatever holds them: files, a table of snapshots, or this process.

In: a checked source, the columns that are read. Out: their tables, as a flow of any engine. Holds: only those columns are read.
"""

from collections.abc import Sequence

from dp_pipelines.jobs.sources.read_table import held_tables
from dp_pipelines.jobs.sources.source_files import Source
from dp_pipelines.steps.flow import Flow
from dp_pipelines.steps.read_files import UNKNOWN, Shuffled


def rows_of(start: Flow, source: Source, columns: Sequence[str], shuffled: Shuffled = UNKNOWN) -> Flow:
    """The rows, as tables.

    Args:
        start: where the engine's sources begin.
        source: what is read.
        columns: their names.
        shuffled: what becomes of a row.
    """
    if source.table:
        return held_tables(start, source.table, columns, shuffled)
    types = {name: source.schema.field(name).type for name in columns}
    return source.reader.tables(start, source.files, types, shuffled)
