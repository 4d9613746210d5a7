"""What a pipeline's graph says: which coders its PCollections have, and which shuffles it makes.

Tests only. tests/transforms/test_graph.py shows that each of these checks can fail.
"""

import apache_beam as beam
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

GROUP_BY_KEY = common_urns.primitives.GROUP_BY_KEY.urn

OWN_CODER = b"ArrowTableCoder"
"""Beam sends a registered coder by name, under the same urn as a pickler."""


def proto(pipeline: beam.Pipeline) -> beam_runner_api_pb2.Pipeline:
    """The runner's view of a pipeline."""
    return pipeline.to_runner_api(return_context=False)


def pickled_collections(pipeline: beam.Pipeline) -> list[str]:
    """The outputs, by transform, whose coder falls back to pickling their elements.

    Left out: the inner steps of Beam's own Reshuffle, which pickles time stamps and pane numbers beside each element.
    """
    graph = proto(pipeline)
    coders = graph.components.coders

    def pickles(coder_id: str) -> bool:
        spec = coders[coder_id].spec
        own = OWN_CODER in spec.payload[:40]
        return ("pickled_python" in spec.urn and not own) or any(map(pickles, coders[coder_id].component_coder_ids))

    pickled = {name for name, coll in graph.components.pcollections.items() if pickles(coll.coder_id)}
    transforms = graph.components.transforms.values()
    named = {t.unique_name for t in transforms for output in t.outputs.values() if output in pickled}
    return sorted(name for name in named if "/ReshufflePerKey/" not in name)


def shuffles(pipeline: beam.Pipeline) -> list[str]:
    """The unique names of all GroupByKeys."""
    transforms = proto(pipeline).components.transforms.values()
    return sorted(t.unique_name for t in transforms if t.spec.urn == GROUP_BY_KEY)
