"""Schemas of others, by which files are judged that we write for their programs.

In: `DP_SCHEMAS`, a folder with copies of them. Out: the schema. Holds: a copy is the very version that is pinned here, by its
digest; where there is none the test is skipped, since no text of theirs is part of this repository.
"""

import hashlib
import os
import pathlib
from typing import Any

import pytest
import yaml

SCHEMAS = {
    # github.com/opendp/deployments-registry-data, folder schemas, commit 3e9c812a924cf01d228f26f6c462c59c391c3f2a
    "deployments-schema.yaml": "9d607ad7e587fd440f5164d407e7a77089b46b8caa016f5d8c7d127cfc1d5291",  # MIT
    # github.com/OpenLineage/OpenLineage, folder spec (2-0-2), commit 8f02abfb7a252783b95df79f443edb13959bf52c
    "OpenLineage.json": "69f68bee00b9beac88a87059c0102410e7bb05f3f43c46d02a0409831eceb0d2",  # Apache-2.0
}
"""Where each comes from, its digest and its licence."""


def public_schema(name: str) -> dict[str, Any]:
    """Return a schema; the test that asks is skipped where `DP_SCHEMAS` names no folder with it."""
    path = pathlib.Path(os.environ.get("DP_SCHEMAS", "no such folder")) / name
    if not path.is_file():
        pytest.skip(
            f"needs {name} in the folder that DP_SCHEMAS names (tests/helpers/public_schemas.py says from where)"
        )
    content = path.read_bytes()
    assert hashlib.sha256(content).hexdigest() == SCHEMAS[name]
    schema: dict[str, Any] = yaml.safe_load(content)
    return schema
