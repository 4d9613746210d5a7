"""An expansion service for Java and Go, on this machine only: `python -m dp_pipelines.jobs.beam_yaml.expansion --port 8097`.

In: requests of Beam's expansion API. Out: our transforms, expanded. Holds: the port is bound to 127.0.0.1; no other service is
on it, so nobody can fetch files or start workers; a request that names anything but `TRANSFORMS`, or that brings code of its own
(a pickled coder, a function as text, objects of Python in a column), is refused before that part is decoded; a setting that names
a file is refused before it is opened. Not covered: other users of this machine, who reach the port too: they can expand our
transforms, and see whether a folder of the name in `output` exists; where the Python steps run, which the runner decides.
"""

# Beam's own starter (expansion_service_main of 2.77) binds every address, hands out any file that the user can read, and starts
# workers that run code for everybody who asks. Its filter of names lets `dp_pipelines...transforms.os.system` through, so
# that no name of a request is ever looked up here: it chooses one of two classes.

import argparse
import contextvars
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import grpc
from apache_beam.coders import RowCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns, python_urns
from apache_beam.portability.api import (
    beam_expansion_api_pb2,
    beam_expansion_api_pb2_grpc,
    external_transforms_pb2,
    schema_pb2,
)
from apache_beam.runners.portability.expansion_service import ExpansionServiceServicer
from apache_beam.transforms.fully_qualified_named_transform import PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN
from apache_beam.utils import thread_pool_executor

from dp_pipelines.errors import DpError
from dp_pipelines.jobs.beam_yaml import transforms
from dp_pipelines.jobs.terminal.harmless import harmless
from dp_pipelines.transforms import shard_counts

HOST = "127.0.0.1"


class _Aggregate(transforms.DpAggregate):
    """For a caller who may not read what this user may, and whose runner is not known here."""

    takes_lists_in_files = False
    shards_left_out = shard_counts.ELSEWHERE


class _SelectPartitions(transforms.DpSelectPartitions):
    """The same."""

    takes_lists_in_files = False
    shards_left_out = shard_counts.ELSEWHERE


_CLASSES: dict[str, type[beam.PTransform]] = {
    f"{transforms.__name__}.DpAggregate": _Aggregate,
    f"{transforms.__name__}.DpSelectPartitions": _SelectPartitions,
}

TRANSFORMS = tuple(_CLASSES)
"""The names that are expanded: those that take rows. `DpReadParquet` would open files for the caller."""

OURS = "dp_pipelines:transform:expanded:v1"
"""What a request that was found harmless calls for, within this module."""

UNEXPECTED = "cannot be expanded; the reason is in what the expansion service prints"

UNREADABLE = "cannot be read as a request of Beam's expansion API"

IMPULSE = common_urns.primitives.IMPULSE.urn
"""Stands in for the producers of the inputs; no other transform needs to be known."""

CODERS = frozenset(
    getattr(common_urns.coders, name).urn
    for name in (
        "BOOL", "BYTES", "DOUBLE", "GLOBAL_WINDOW", "INTERVAL_WINDOW", "ITERABLE", "KV", "LENGTH_PREFIX", "NULLABLE", "ROW",
        "SHARDED_KEY", "STATE_BACKED_ITERABLE", "STRING_UTF8", "TIMER", "VARINT", "WINDOWED_VALUE",
    )
)  # fmt: skip
"""Coders that every language knows, and that hold no value, function or schema of their own. All others may hold code."""

LOGICAL_TYPES = frozenset(
    {
        *(
            getattr(common_urns, name).urn
            for name in (
                "date", "decimal", "fixed_bytes", "fixed_char", "micros_instant", "millis_instant", "timestamp", "var_bytes",
                "var_char",
            )
        ),
        "beam:logical_type:fixed_decimal:v1",
        "beam:logical_type:javasdk_time:v1",
    }
)  # fmt: skip
"""Types of columns beside Beam's plain ones. Reading a value of another one may run code: functions are compiled, objects are
what their own code makes."""

WINDOWS = frozenset(
    window.urn
    for window in (
        common_urns.global_windows,
        common_urns.fixed_windows,
        common_urns.sliding_windows,
        common_urns.session_windows,
    )
)


class Expansion(ExpansionServiceServicer):
    """Expands our transforms and refuses all others.

    Args:
        environment_type: how the runner starts the workers of the Python steps, as in Beam's options.
        environment_config: what that way needs to know; "" for nothing.
    """

    def __init__(self, environment_type: str, environment_config: str = "") -> None:
        super().__init__(
            PipelineOptions(
                flags=[],
                environment_type=environment_type,
                environment_config=environment_config or None,
                sdk_location="container",
            )
        )

    def Expand(self, request: Any, context: Any = None) -> Any:
        """Return the expanded transform, or what is wrong with the request."""
        try:
            message = next(_refusals(request), "")
        except Exception:  # bytes of somebody's, which may be broken in any way
            message = UNREADABLE
        if message:
            return beam_expansion_api_pb2.ExpansionResponse(error=message)
        request.ClearField("pipeline_options")  # they could name files to be staged
        request.transform.spec.urn = OURS
        refused: list[DpError] = []
        before = _REFUSED.set(refused)
        try:
            response = super().Expand(request, context)
        finally:
            _REFUSED.reset(before)
        if not response.error:
            return response
        if refused:  # what Beam answers is a traceback, with places of this machine
            return beam_expansion_api_pb2.ExpansionResponse(error=str(refused[-1]))
        print(harmless(response.error), file=sys.stderr, flush=True)
        return beam_expansion_api_pb2.ExpansionResponse(error=UNEXPECTED)


_REFUSED: contextvars.ContextVar[list[DpError]] = contextvars.ContextVar("refused")
"""What our own code says is wrong with the request that this thread expands."""


class _Expanded(beam.PTransform):
    """The transform that a request asks for.

    Args:
        payload: of the request.
    """

    def __init__(self, payload: Any) -> None:
        super().__init__()
        self._row = _row(payload)

    def expand(self, pcoll: Any) -> Any:
        """Make the transform and apply it, within one place where errors are heard."""
        try:
            name = self._row.constructor
            transform = _CLASSES[name](*_values(self._row, "args"), **_settings(self._row))
            return pcoll | name.rpartition(".")[2] >> transform
        except DpError as error:
            _REFUSED.get().append(error)
            raise


beam.PTransform.register_urn(
    OURS,
    external_transforms_pb2.ExternalConfigurationPayload,
    lambda transform, payload, context: _Expanded(payload),
)


def _row(payload: Any) -> Any:
    """Return the call in a payload: its constructor, args and kwargs."""
    return RowCoder(payload.schema).decode(payload.payload)


def _values(row: Any, name: str) -> tuple[Any, ...]:
    return tuple(getattr(row, name, None) or ())


def _settings(row: Any) -> dict[str, Any]:
    named = getattr(row, "kwargs", None) or {}
    return dict(named) if isinstance(named, dict) else named._asdict()


def _refusals(request: Any) -> Iterator[str]:
    """Yield what is wrong with a request, from its plain fields: nothing in it is decoded before it is known to be harmless."""
    components = request.components
    if request.transform.spec.urn != PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN:
        yield "only transforms that are called by name are expanded here: " + ", ".join(TRANSFORMS)
    unknown = [
        *_others((transform.spec.urn for transform in components.transforms.values()), {IMPULSE, ""}),
        *_others((coder.spec.urn for coder in components.coders.values()), CODERS),
        *_others((one.window_fn.urn for one in components.windowing_strategies.values()), WINDOWS),
    ]
    if unknown:
        yield f"cannot take {unknown[0]!r} from another program; use coders and windows that all languages know"
    payload = external_transforms_pb2.ExternalConfigurationPayload.FromString(request.transform.spec.payload)
    rows = _row_schemas(components.coders.values())
    if _logical_types(payload.schema):
        yield "settings must be texts, numbers, or lists and mappings of these"
    if not LOGICAL_TYPES.issuperset(urn for schema in rows for urn in _logical_types(schema)):
        yield "columns must not hold functions or objects; use types that all languages know"
    constructor = getattr(_row(payload), "constructor", None)
    if constructor not in TRANSFORMS:
        yield "cannot be expanded here; choose one of " + ", ".join(TRANSFORMS)


def _others(urns: Iterable[str], known: Iterable[str]) -> list[str]:
    return [urn for urn in urns if urn not in known]


def _row_schemas(coders: Iterable[Any]) -> Iterator[Any]:
    for coder in coders:
        if coder.spec.urn == common_urns.coders.ROW.urn:
            yield schema_pb2.Schema.FromString(coder.spec.payload)


def _logical_types(schema: Any) -> set[str]:
    """Return the logical types of a schema at any depth, those of its options too, which Beam decodes with the schema."""
    options = [*schema.options, *(option for field in schema.fields for option in field.options)]
    kinds = [*(field.type for field in schema.fields), *(option.type for option in options)]
    return {urn for kind in kinds for urn in _logical_types_within(kind)}


def _logical_types_within(kind: Any) -> Iterator[str]:
    """Yield the logical types in a type."""
    if kind.HasField("array_type"):
        yield from _logical_types_within(kind.array_type.element_type)
    elif kind.HasField("iterable_type"):
        yield from _logical_types_within(kind.iterable_type.element_type)
    elif kind.HasField("map_type"):
        yield from _logical_types_within(kind.map_type.key_type)
        yield from _logical_types_within(kind.map_type.value_type)
    elif kind.HasField("row_type"):
        yield from _logical_types(kind.row_type.schema)
    elif kind.HasField("logical_type"):
        yield kind.logical_type.urn
        yield from _logical_types_within(kind.logical_type.representation)
        yield from _logical_types_within(kind.logical_type.argument_type)


def serve(port: int, environment_type: str, environment_config: str = "") -> tuple[grpc.Server, int]:
    """Start a server that expands our transforms.

    Args:
        port: on 127.0.0.1; 0 for a free one.
        environment_type: see `Expansion`.
        environment_config: see `Expansion`.

    Returns:
        the server, and its port.

    Raises:
        RuntimeError: the port is taken.
    """
    # Without this option two servers share a port silently.
    server = grpc.server(thread_pool_executor.shared_unbounded_instance(), options=[("grpc.so_reuseport", 0)])
    service = Expansion(environment_type, environment_config)
    beam_expansion_api_pb2_grpc.add_ExpansionServiceServicer_to_server(service, server)
    bound = server.add_insecure_port(f"{HOST}:{port}")
    server.start()
    return server, bound


def main(arguments: Sequence[str]) -> int:
    """Serve until the process is interrupted. Exit codes: 0 stopped; 2 wrong arguments, or the port is taken."""
    parser = argparse.ArgumentParser(
        prog="python -m dp_pipelines.jobs.beam_yaml.expansion",
        description="Expand the transforms of dp_pipelines for pipelines in other languages, on this machine only.",
    )
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1; 0 takes a free one")
    parser.add_argument(
        "--environment_type",
        default=python_urns.EMBEDDED_PYTHON_GRPC,
        help="how workers of the Python steps start, as in docs/runners.md; default: in the process of Beam's job service "
        "in Python",
    )
    parser.add_argument(
        "--environment_config", default="", help="what that way needs, e.g. the address of a worker pool"
    )
    given = parser.parse_args(arguments)
    try:
        server, port = serve(given.port, given.environment_type, given.environment_config)
    except RuntimeError:
        print(f"error: --port {given.port}: cannot be listened to; choose another one", file=sys.stderr)
        return 2
    print(f"expanding for programs of this machine: {HOST}:{port}", file=sys.stderr, flush=True)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    stopped.wait()
    server.stop(None).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
