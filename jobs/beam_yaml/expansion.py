"""An expansion service for Java and Go, on this machine only: `python -m dp_pipelines.jobs.beam_yaml.expansion --port 8097`.

In: requests of Beam's expansion API. Out: our transforms, expanded. Holds: the port is bound to 127.0.0.1; no other service is
on it, so nobody can fetch files or start workers; a request that names anything but `TRANSFORMS`, or that brings code of its own
(a pickled coder, a function as text), is refused before that part is decoded. Not covered: other users of this machine, who
reach the port too and can expand our transforms, which reads no row; where the Python steps run, which the runner decides.
"""

# Beam's own starter (expansion_service_main of 2.77) binds every address, hands out any file that the user can read, and starts
# workers that run code for everybody who asks. Its filter of names lets `dp_pipelines...transforms.os.system` through.

import argparse
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

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
from apache_beam.transforms.fully_qualified_named_transform import (
    PYTHON_FULLY_QUALIFIED_NAMED_TRANSFORM_URN,
    FullyQualifiedNamedTransform,
)
from apache_beam.utils import thread_pool_executor

from dp_pipelines.jobs.beam_yaml import transforms

HOST = "127.0.0.1"

TRANSFORMS = tuple(
    f"{transform.__module__}.{transform.__name__}"
    for transform in (transforms.DpAggregate, transforms.DpSelectPartitions)
)
"""The names that are expanded: those that take rows. `DpReadParquet` would open files for the caller."""

IMPULSE = common_urns.primitives.IMPULSE.urn
"""Stands in for the producers of the inputs; no other transform needs to be known."""

CODERS = frozenset(coder.urn for coder in common_urns.coders.__dict__.values() if hasattr(coder, "urn"))
"""Coders that every language knows. All others may hold code."""

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
        message = next(_refusals(request), "")
        if message:
            return beam_expansion_api_pb2.ExpansionResponse(error=message)
        request.ClearField("pipeline_options")  # they could name files to be staged
        return super().Expand(request, context)


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
    if any(_has_logical_type(field.type) for field in payload.schema.fields):
        yield "settings must be texts, numbers, or lists and mappings of these"
    if any(_has_code(field.type) for schema in rows for field in schema.fields):
        yield "columns must not hold functions"
    constructor = getattr(RowCoder(payload.schema).decode(payload.payload), "constructor", None)
    if constructor not in TRANSFORMS:
        yield "cannot be expanded here; choose one of " + ", ".join(TRANSFORMS)


def _others(urns: Iterable[str], known: Iterable[str]) -> list[str]:
    return [urn for urn in urns if urn not in known]


def _row_schemas(coders: Iterable[Any]) -> Iterator[Any]:
    for coder in coders:
        if coder.spec.urn == common_urns.coders.ROW.urn:
            yield schema_pb2.Schema.FromString(coder.spec.payload)


def _types_within(kind: Any) -> Iterator[Any]:
    """Yield a type of a schema and all types in it."""
    yield kind
    if kind.HasField("array_type"):
        yield from _types_within(kind.array_type.element_type)
    elif kind.HasField("iterable_type"):
        yield from _types_within(kind.iterable_type.element_type)
    elif kind.HasField("map_type"):
        yield from _types_within(kind.map_type.key_type)
        yield from _types_within(kind.map_type.value_type)
    elif kind.HasField("row_type"):
        for field in kind.row_type.schema.fields:
            yield from _types_within(field.type)
    elif kind.HasField("logical_type"):
        yield from _types_within(kind.logical_type.representation)


def _has_logical_type(kind: Any) -> bool:
    return any(one.HasField("logical_type") for one in _types_within(kind))


def _has_code(kind: Any) -> bool:
    """Return True if values of a type are functions as text, which Beam compiles."""
    return any(one.logical_type.urn == common_urns.python_callable.urn for one in _types_within(kind))


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
    # Only the exact names of `TRANSFORMS` come this far: see `_refusals`.
    with FullyQualifiedNamedTransform.with_filter(f"{transforms.__name__}.*"):
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
