"""A pipeline with blocks that is run a second time is refused: its plan pays for one draw."""

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines import Plan
from dp_pipelines.errors import RequestError
from dp_pipelines.extensions.sample_and_aggregate.blocks import Blocks
from dp_pipelines.transforms import SampleAndAggregate
from tests.transforms.test_once import AGAIN, tables


def test_blocks_are_refused_a_second_time() -> None:
    blocks = Blocks(privacy_unit="who", blocks=3, low=0.0, high=1.0)
    pipeline = beam.Pipeline(runner=FnApiRunner())
    tables(pipeline) | SampleAndAggregate(
        Plan(epsilon=9.0, stages={"s": blocks.query})["s"], blocks, len, columns=["x"]
    )
    pipeline.run().wait_until_finish()
    with pytest.raises(RequestError, match=AGAIN):
        pipeline.run()
