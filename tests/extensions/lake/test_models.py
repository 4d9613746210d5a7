"""What a job file says of tables: versions and snapshots are whole numbers or parameters."""

from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from tests.jobs.spec.test_source_models import read


@pytest.mark.parametrize(
    "table", [{"delta": {"path": "t", "version": 1.5}}, {"iceberg": {"path": "t", "snapshot": True}}]
)
def test_a_snapshot_that_is_no_whole_number_is_refused_once(table: dict[str, dict[str, Any]]) -> None:
    ((kind, said),) = table.items()
    with pytest.raises(RequestError) as raised:
        read(table)
    field = f"source.{kind}.{list(said)[1]}"
    assert f"{field}: must be a whole number, or a parameter in braces" in str(raised.value)
    assert str(raised.value).count("must be") == 1
    for right in (12, "{version}", None):
        assert read({kind: {**said, list(said)[1]: right}}) is not None
