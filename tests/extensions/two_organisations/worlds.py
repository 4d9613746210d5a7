"""Three parties on this machine: two organisations with rows and one that only computes.

In: a folder. Out: a folder for each party with the same job file, and one of all rows together; runs as real processes.
Holds: ports are free when a world is made. Tests only.
"""

import dataclasses
import pathlib
import socket
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.helpers.forks import Forked

PARTIES = ("north", "south", "notary")
REGIONS = ("a", "b", "c")


def free_ports(number: int) -> list[int]:
    """Ports that nobody uses now."""
    held = [socket.socket() for _ in range(number)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def rows(first: int, people: int) -> pa.Table:
    """Four rows of each person."""
    made = np.random.default_rng(first)
    customers = np.repeat(np.arange(first, first + people), 4)
    regions = np.array(REGIONS)[made.integers(0, len(REGIONS), len(customers))]
    return pa.table({"customer": customers, "region": regions, "amount": made.random(len(customers)) * 100})


NORTH, SOUTH = rows(0, 300), rows(300, 200)


def job(ports: list[int], **changed: Any) -> dict[str, Any]:
    """The job of all parties."""
    members: dict[str, Any] = {
        name: {"address": f"127.0.0.1:{port}"} for name, port in zip(PARTIES, ports, strict=True)
    }
    members["notary"]["rows"] = False
    return {
        "dataset": "shop",
        "privacy_unit": "customer",
        "budget": {"epsilon": 1.0, "delta": 1e-6},
        "source": {"parquet": "data/*.parquet"},
        "parties": {"people": "disjoint", "wait_seconds": 60, "members": members},
        "stages": {
            "sales": {
                "kind": "aggregate",
                "partition_by": ["region"],
                "partitions": {"public": [[region] for region in (*REGIONS, "nobody's")]},
                "bounds": {"max_partitions_contributed": 2, "max_contributions_per_partition": 2},
                "metrics": {
                    "orders": {"kind": "count"},
                    "buyers": {"kind": "privacy_id_count"},
                    "revenue": {"kind": "sum", "column": "amount", "min_value": 0, "max_value": 100},
                    "basket": {"kind": "mean", "column": "amount", "min_value": 0, "max_value": 100},
                },
            }
        },
        **changed,
    }


@dataclasses.dataclass(frozen=True)
class World:
    """The folders of all parties."""

    folder: pathlib.Path

    @classmethod
    def made(
        cls, folder: pathlib.Path, said: dict[str, Any], north: pa.Table = NORTH, south: pa.Table = SOUTH
    ) -> "World":
        """The same job file beside the rows of each."""
        tables = {
            "north": north,
            "south": south,
            "notary": north.slice(0, 0),
            "joint": pa.concat_tables([north, south]),
        }
        for name, table in tables.items():
            (folder / name / "data").mkdir(parents=True)
            pq.write_table(table, folder / name / "data" / "rows.parquet")
            own = {key: value for key, value in said.items() if name != "joint" or key != "parties"}
            (folder / name / "job.yaml").write_text(yaml.safe_dump(own, sort_keys=False))
        return cls(folder)

    def path(self, party: str) -> pathlib.Path:
        """The job file of a party."""
        return self.folder / party / "job.yaml"

    def start(self, party: str, *more: str, output: str = "out") -> Forked:
        """Run the job as one party, in a process."""
        asked = ("run", "job.yaml", "--party", party, "--output", output, *more)
        return Forked(*asked, folder=self.folder / party)

    def together(self, *more: str, output: str = "out") -> dict[str, tuple[int, str, str]]:
        """Run the job as all parties at once: exit code, output and messages of each."""
        started = {party: self.start(party, *more, output=output) for party in PARTIES}
        found = {}
        for party, process in started.items():
            said, told = process.communicate(timeout=180)
            found[party] = process.returncode, said, told
        return found
