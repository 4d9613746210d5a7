"""Everything that a pipeline carries to its workers, with all that is packed unpacked. Tests only.

tests/extensions/dataflow/test_dataflow_requirements.py shows that a value in a step is found.
"""

import base64
import bz2
import contextlib
import zlib

from apache_beam.portability.api import beam_runner_api_pb2


def unpacked(graph: object) -> bytes:
    """All that a graph carries: its own bytes, and those of every pickled object in it, unpacked."""
    parts = [graph.SerializeToString()]

    def unpack(text: bytes) -> None:
        try:
            raw = base64.b64decode(text, validate=True)
        except ValueError:
            return
        parts.append(raw)
        for unzip in (bz2.decompress, zlib.decompress):  # Beam zips pickles, by either
            with contextlib.suppress(OSError, ValueError, zlib.error):
                parts.append(unzip(raw))

    for transform in graph.components.transforms.values():
        if transform.spec.urn == "beam:transform:pardo:v1":
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            unpack(payload.do_fn.payload)
            parts.append(payload.do_fn.payload)
        unpack(transform.spec.payload)
    for coder in graph.components.coders.values():
        unpack(coder.spec.payload)
    return b"\n".join(parts)
