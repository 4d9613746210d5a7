"""Lists of keys on disk, for tests.

In: keys in rising order. Out: a `KeyFile`. Holds: a small list is one bucket, unless its buckets are made small. Not
covered: files of users (`jobs.sources.key_lists`).
"""

import pathlib
from collections.abc import Sequence

import pyarrow as pa

from dp_pipelines.kernels.columns.key_file import KeyFile
from dp_pipelines.kernels.columns.key_file_writer import KeyFileWriter


def key_file(
    folder: pathlib.Path,
    *columns: Sequence[object] | pa.Array,
    bucket_keys: int = 2**18,
    part_keys: int = 2**21,
) -> KeyFile:
    """A list of sorted keys, given by column.

    Args:
        folder: gets the files; it is made.
        columns: of a key.
        bucket_keys, part_keys: see `KeyFileWriter`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    names = [f"k{index}" for index in range(len(arrays))]
    writer = KeyFileWriter(folder, names, len(arrays[0]), bucket_keys=bucket_keys, part_keys=part_keys)
    for begin in range(0, len(arrays[0]), 1000):
        writer.add([array.slice(begin, 1000) for array in arrays])
    writer.finish()
    return KeyFile(str(folder), folder.name, len(arrays[0]), len(arrays))
