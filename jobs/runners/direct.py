"""Beam's own runner in this process, which also reports how many of its steps have begun.

In: a pipeline. Out: its run. Holds: no download, no other process, no silent choice of another runner (Beam's
DirectRunner may choose Prism). Not covered: data larger than the memory, which holds everything that is shuffled.
"""

from collections.abc import Sequence
from typing import Any

from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from dp_pipelines.jobs.terminal.progress import READING, Progress


class CountingRunner(FnApiRunner):
    """FnApiRunner with progress.

    Both methods override internals of the runner: if another version lacks them, only progress stops.

    Args:
        progress: is told each step.
        files: the number of files.
        stages: names of the job's stages.
    """

    def __init__(self, progress: Progress, files: int, stages: Sequence[str]) -> None:
        super().__init__()
        self._shown, self._files, self._stages = progress, files, list(stages)

    def run_stages(self, stage_context: Any, stages: Any) -> Any:
        """Run all fused steps."""
        self._shown.begin(len(stages), self._files)
        return super().run_stages(stage_context, stages)

    def _execute_bundle(self, runner_execution_context: Any, bundle_context_manager: Any, bundle_input: Any) -> Any:
        name = str(bundle_context_manager.stage.name)
        self._shown.step(name, self._words(name))
        return super()._execute_bundle(runner_execution_context, bundle_context_manager, bundle_input)

    def _words(self, name: str) -> str:
        """What a fused step does, from the labels of its transforms."""
        if "Read/" in name:
            return READING
        return ", ".join(stage for stage in self._stages if f"{stage}/" in name)
