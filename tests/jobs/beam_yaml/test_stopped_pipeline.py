"""A pipeline of Beam YAML that a signal stops: what ends it is the signal, not the error that it became on the way."""

import pathlib
import signal

import pytest

pytest.importorskip("apache_beam.yaml", reason="needs the extra yaml")

from dp_pipelines import interrupts
from dp_pipelines.jobs.beam_yaml import run_pipeline
from dp_pipelines.jobs.runners.beam_engine import BeamEngine

PIPELINE = "pipeline: {type: chain, transforms: [{type: Create, config: {elements: [{a: 1}]}}]}"


def test_a_signal_that_beam_turns_into_an_error_is_still_an_interrupt(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*given: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise RuntimeError("secret") from None

    monkeypatch.setattr(BeamEngine, "run", run)
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_pipeline.run(str(tmp_path / "pipeline.yaml"))
    finally:
        signal.signal(signal.SIGINT, before)
    assert not interrupts._asked.is_set()
