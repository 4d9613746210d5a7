"""A published table in a Delta table: one commit for each run, whose data file is the published Parquet file byte for byte.

In: the Parquet file of a release, the place of a Delta table, the run's name. Out: a new version of the table, or none where the
run has its commit. Holds: a run is committed once: its commit has a transaction (`txn`) of the run's name, and the log is asked
for it under the version that the commit is based on; what the table cannot take is refused by public facts, before anything is
charged. Not covered: where a table is (`delta_place`); the time of a commit, which every commit of Delta has.
"""

import collections
import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.disk_errors import DiskError, reason_of
from dp_pipelines.engine.object_store import StoreError
from dp_pipelines.errors import PublishError, RequestError
from dp_pipelines.extensions.lake import delta_place
from dp_pipelines.extensions.lake.delta_place import DeltaPlace
from dp_pipelines.jobs.outputs.extension_output import TRANSACTIONS
from dp_pipelines.jobs.outputs.release_place import ReleasePlace

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

RUN = "run_id"
"""The column of a table that is appended to that says of which run a row is: the table's partition column."""

MOST_TRIES, MOST_RACES = 10, 100
"""Commits to one version of a table that may fail before one of ours gives up; and versions that other writers may win."""

NO_VERSION = -1
"""Stands for that of a table that is not there yet."""

_WRITER = {"appendOnly", "invariants", "timestampNtz"}
"""The writer features of Delta's protocol that a commit of plain files keeps to."""

_PLAIN_WRITER, _NAMED_FEATURES = 2, 7
"""Up to the first version of writers there is nothing else to keep; from the second on features have names."""

_NO_NAME = frozenset(" ,;{}()\n\t=")
"""Characters that no column of a table without column mapping may have in its name."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeltaOutput:
    """Where a job's tables are published as Delta tables, and how.

    Args:
        folder: of the tables, one for each published table under its name; see `delta_place.folder_of`.
        mode: `append` or `overwrite`.
    """

    folder: str
    mode: str

    @property
    def appends(self) -> bool:
        """Whether the rows of earlier runs stay."""
        return self.mode == "append"

    def to_json(self) -> dict[str, Any]:
        """Return what a manifest says of it beside the names of the tables and the run."""
        return {"mode": self.mode}

    def needed(self) -> None:
        """Refuse to go on without the packages. Raises: RequestError."""
        self._place("any").needed()

    def refused(self, schema: pa.Schema) -> Iterator[tuple[str, str, str]]:
        """What a Delta table cannot hold of a table: the column, the rule, a hint.

        Args:
            schema: of the published table.
        """
        taken = {RUN: "the column of the run's id"} if self.appends else {}
        for field in schema:
            rename = f"rename it, e.g. columns: {{other: {json.dumps(field.name)}}}"
            if field.name.casefold() in taken:
                other = taken[field.name.casefold()]
                yield field.name, f"is called as {other} is, in any case of its letters", rename
            elif _NO_NAME & set(field.name):
                yield field.name, "has a name with a space or one of ,;{}()=, which a Delta table cannot have", rename
            elif (cast := _cast_of(field.type)) is not None:
                hint = f'cast it first, e.g. columns: {{{field.name}_cast: "CAST({field.name} AS {cast})"}}'
                yield field.name, f"is {field.type}, which a Delta table cannot hold", hint
            taken.setdefault(field.name.casefold(), f"column {field.name!r}")

    def refuse_place(self, name: str, release: ReleasePlace) -> None:
        """Refuse a table in a release, where it would be no part of what was published, and a release in a table.

        Args:
            name: of the published table.
            release: where the run is published.

        Raises:
            RequestError: as said.
        """
        place = self._place(name)
        if (other := place.overlapping(release)) is not None:
            message = f"and the release {other!r} lie in one another"
            hint = "choose another folder for delta:, or for the output"
            raise RequestError(field=place.field, message=message, hint=hint)

    def refuse_unready(self, name: str, schema: pa.Schema, transaction: str) -> None:
        """Refuse a table that cannot take a run, or has it already; nothing is created.

        Args:
            name: of the published table.
            schema: its columns.
            transaction: names the run.

        Raises:
            RequestError: as said.
        """
        place = self._place(name)
        place.refuse_unready()
        table = place.opened()
        if table is None:
            return
        try:
            there, wrong = table.transaction_version(transaction), self._wrong_with(table, schema, transaction)
        except Exception:  # what it has not read yet it reads now
            raise place.unreadable() from None
        if there is not None:
            message = "has a run of this id already, whose release is not the one that would be made now"
            hint = "give this run another --run-id, or name the ledger that knows the first one"
            raise RequestError(field=place.field, message=message, hint=hint)
        if wrong:
            raise RequestError(field=place.field, message=wrong, hint="choose another folder for delta:")

    def publish(self, name: str, file: pathlib.Path, transaction: str, run_id: str) -> None:
        """Commit a published table, unless the run's commit is there.

        Args:
            name: of the published table.
            file: its Parquet file.
            transaction: names the run.
            run_id: its id, for readers of the table.

        Raises:
            PublishError: it could not be committed; the same command tries again.
        """
        place = self._place(name)
        try:
            with place.at_work():
                why = self._commit(place, file, transaction, run_id)
        except (DiskError, StoreError) as error:
            why = error.reason
        except RequestError as error:
            why = error.message
        except Exception as error:  # whatever it is, the release is charged and stands
            why = reason_of(error) or place.trouble() or "cannot be written"
        if why:
            message = f"{place.field}: {why}; the release is published in {str(file.parent)!r}, and not there"
            raise PublishError(f"{message}; mend this, then run the same command again, which costs nothing")

    def _commit(self, place: DeltaPlace, file: pathlib.Path, transaction: str, run_id: str) -> str:
        """The same at a place that is ready; why it failed, or nothing."""
        schema = pa.parquet.read_schema(file)
        added, tries = None, collections.Counter[int]()
        while len(tries) <= MOST_RACES and max(tries.values(), default=0) < MOST_TRIES:
            table = place.opened()
            there = table.transaction_version(transaction) if table is not None else None
            if there is not None:
                return "" if there == _mark(transaction, file) else "has another release of a run of this id"
            wrong = self._wrong_with(table, schema, transaction) if table is not None else ""
            if wrong:
                return wrong
            added = added or self._added(place, file, transaction, run_id)
            tries[table.version() if table is not None else NO_VERSION] += 1
            if self._committed(table, place, schema, added, (transaction, _mark(transaction, file)), run_id):
                return ""
        return place.trouble() or "cannot be committed to"

    def _committed(
        self, table: "DeltaTable | None", place: DeltaPlace, schema: pa.Schema, added: Any, run: tuple[str, int], run_id: str
    ) -> bool:  # fmt: skip
        """Commit a file to the version of a table that was looked at; whether that was its last one, so that it could be done."""
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import create_table_with_add_actions

        properties = CommitProperties(
            custom_metadata={"dp_pipelines.run_id": run_id},
            max_commit_retries=0,  # whoever loses a race looks again whether the run has its commit
            app_transactions=[Transaction(*run)],
        )
        columns, owner = self._schema(schema), run[0].removesuffix(f"/{run_id}")
        same: Any = {"partition_by": [RUN] if self.appends else [], "commit_properties": properties}
        made: Any = {"mode": "error", "name": owner, "storage_options": place.options}
        try:
            if table is None:
                create_table_with_add_actions(place.shown, columns, [added], **made, **same)
            else:
                table.create_write_transaction([added], self.mode, columns, **same)
        except Exception:  # each of its causes has a class of its own; the next look says which it was
            return False
        return True

    def _added(self, place: DeltaPlace, file: pathlib.Path, transaction: str, run_id: str) -> Any:
        """The table's data file, written, as a commit names it."""
        from deltalake.transaction import AddAction

        content = file.read_bytes()
        # The same run has the same file, however often it is written, and another run another one.
        name = f"part-{_digest(transaction, content).hex()[:32]}.parquet"
        written = place.put(name, content)
        return AddAction(
            path=name,
            size=len(content),
            partition_values={RUN: run_id} if self.appends else {},
            modification_time=written,
            data_change=True,
            stats=json.dumps({"numRecords": pa.parquet.read_metadata(file).num_rows}),
        )

    def _wrong_with(self, table: "DeltaTable", schema: pa.Schema, transaction: str) -> str:
        """Why a table cannot take files of a schema; nothing where it can."""
        # A table that is made here is called by what the transactions of its dataset have in common.
        owner = table.metadata().name or ""
        if owner.startswith(TRANSACTIONS) and not transaction.startswith(f"{owner}/"):
            return f"is of dataset {owner.removeprefix(TRANSACTIONS)!r}, whose run ids are its own"
        protocol, configuration = table.protocol(), table.metadata().configuration
        features = set(protocol.writer_features or ())
        if protocol.min_writer_version > _PLAIN_WRITER and protocol.min_writer_version != _NAMED_FEATURES:
            return (
                f"asks of writers version {protocol.min_writer_version} of Delta's protocol, which is not written here"
            )
        if features - _WRITER:
            return f"asks of writers feature {min(features - _WRITER)!r} of Delta's protocol, which is not written here"
        if "delta.setTransactionRetentionDuration" in configuration:
            return "forgets transactions (delta.setTransactionRetentionDuration), and so which runs it has"
        if not self.appends and configuration.get("delta.appendOnly", "false").lower() == "true":
            return "can only be appended to (delta.appendOnly)"
        if any("delta.invariants" in field.metadata for field in table.schema().fields):
            return "has rules for its columns (delta.invariants), which are not checked here"
        if never := [field.name for field in table.schema().fields if not field.nullable]:
            return f"has column {never[0]!r} that is never null (NOT NULL), and a release may hold nulls"
        wanted, there = _columns(self._schema(schema)), _columns(table.schema())
        if wanted != there:
            name = min({*wanted.items()} ^ {*there.items()})[0]
            said = f"has column {name!r} as {there[name]}" if name in there else f"has no column {name!r}"
            return f"{said}, and the release {f'as {wanted[name]}' if name in wanted else 'none'}"
        partitioned = list(table.metadata().partition_columns)
        if partitioned != ([RUN] if self.appends else []):
            return f"must be partitioned by {f'{RUN!r} alone' if self.appends else 'nothing'}"
        return ""

    def _schema(self, schema: pa.Schema) -> "Schema":
        """The columns of the table."""
        from deltalake import Schema

        fields = [pa.field(field.name, _without_zone_name(field.type)) for field in schema]
        return Schema.from_arrow(pa.schema([*fields, *([pa.field(RUN, pa.string())] if self.appends else [])]))

    def _place(self, name: str) -> DeltaPlace:
        return delta_place.place_of(self.folder, name)


def _digest(transaction: str, content: bytes) -> bytes:
    """Names a release of a run."""
    return hashlib.sha256(transaction.encode() + content).digest()


def _mark(transaction: str, file: pathlib.Path) -> int:
    """The same as a number, which is the version of the run's transaction: the log tells of which release a commit is."""
    return int.from_bytes(_digest(transaction, file.read_bytes())[:8], "big") >> 1


def _cast_of(kind: pa.DataType) -> str | None:
    """What a column of a type is to be cast to; None where a Delta table holds it."""
    inside = kind.value_type if pa.types.is_list(kind) else kind
    plain = (pa.types.is_string, pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32)
    if any(is_one(inside) for is_one in (*plain, pa.types.is_float64, pa.types.is_date32, pa.types.is_binary)):
        return None
    if pa.types.is_date(inside):
        return "DATE"
    if pa.types.is_unsigned_integer(inside):
        return "DECIMAL(20, 0)" if pa.types.is_uint64(inside) else "BIGINT"
    if pa.types.is_timestamp(inside):
        return None if inside.unit == "us" else "TIMESTAMP" if inside.tz is None else "TIMESTAMPTZ"
    if pa.types.is_decimal128(inside):
        return None if 0 <= inside.scale <= inside.precision else "DOUBLE"
    return "VARCHAR"


def _without_zone_name(kind: pa.DataType) -> pa.DataType:
    """An instant as a Delta table has it: without the name of a zone."""
    return pa.timestamp(kind.unit, "UTC") if pa.types.is_timestamp(kind) and kind.tz is not None else kind


def _columns(schema: "Schema") -> dict[str, str]:
    """The type of each column, as Delta's log says it."""
    return {
        field["name"]: json.dumps(field["type"], sort_keys=True) for field in json.loads(schema.to_json())["fields"]
    }
