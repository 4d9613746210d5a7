"""Columns of dictionaries whose codes are used up mean their values in tables of snapshots too (tests/privacy)."""

import pyarrow as pa
import pytest

from dp_pipelines.extensions.lake import equal_rows, snapshot_rows
from dp_pipelines.kernels.columns import gather
from tests.privacy.test_full_dictionaries import LISTED, columns

USES = {
    "equal_rows.among": lambda column: equal_rows.among(pa.table({"a": column}), LISTED.select(["a"])).tolist(),
    "snapshot_rows": lambda column: snapshot_rows._as(column, pa.string()).to_pylist(),
}


@pytest.mark.parametrize("use", USES)
def test_full_codes_mean_their_values(use: str) -> None:
    for layout, column in columns(pa.int8()).items():
        plain = pa.chunked_array([gather.plain(chunk) for chunk in column.chunks])
        assert USES[use](column) == USES[use](plain), layout
