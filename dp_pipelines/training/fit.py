"""Runs a train stage from bounded examples to a model and its evaluation: every release in order, each drawn once.

In: the frozen parts of a train stage, tables of examples (whole units each), a private folder, a store of draws. Out:
the artefact, the evaluation. Holds: each release reads the group of units that its records name (`groups`) and is drawn
through `drawing`; if a later step depends on a release, its first complete result is kept before that step begins, so
no retry draws it again; everything else follows from these. `audit.fitted` runs this and checks it. Not covered: where
the examples come from (transforms.examples), publishing the results, and removing the folder.
"""

import dataclasses
import functools
import io
import itertools
import os
import pathlib
from collections.abc import Callable, Collection, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from dp_pipelines.errors import RequestError
from dp_pipelines.noise import entropy
from dp_pipelines.plan_stages import training_parts
from dp_pipelines.planning.noise_levels import training_noise
from dp_pipelines.planning.payment import pay
from dp_pipelines.planning.plan import Plan
from dp_pipelines.planning.stage import StagePlan
from dp_pipelines.query.train_model import JaxModel, TrainModel
from dp_pipelines.release import manifest, staging
from dp_pipelines.training import evaluation, scoring, stage_on_disk, trainer, weight_errors
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.description import Preparation, Statement
from dp_pipelines.training.drawing import Drawing
from dp_pipelines.training.examples.groups import AllUnits, HeldOutUnits, Tables, TrainingExamples, TrainingUnits
from dp_pipelines.training.examples.split import refuse_foreign
from dp_pipelines.training.features import moments, seen_columns
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.kept_draws import Draws, InMemory
from dp_pipelines.training.kernels.of_task import kernel_of
from dp_pipelines.training.kernels.penalty import penalised
from dp_pipelines.training.libraries import refuse_missing

CLIP = 1.5
"""The default norm of a unit's gradient, in norms of a typical row: residuals are about a half, so about three examples
that pull in one direction count in full. On Ta Feng, half or twice this value loses nothing
(docs/benchmarks/training.md)."""

EVALUATION = "evaluation.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """What a train stage releases."""

    artefact: Artefact
    evaluation: evaluation.Evaluation


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """One run of a train stage.

    Args:
        name: the name of the stage.
        task: what to learn.
        stages: the frozen parts of the stage, by name (`training_parts`); others are ignored.
        tables: returns all examples at each call; each table holds whole units.
        folder: an existing, private folder.
        draws: keeps what later steps depend on.
        key: divides the units; the same for all runs of a plan, and not secret.
        salt: the run's own 64-bit number, which decides which contributions are kept.
        tell: is told about progress, in public words.
        whole: the columns that hold whole numbers, by their public types: never by what tables of examples hold, since there is
            none
            without examples.
        drawing: draws; INTERNAL, for the audit and tests.
    """

    name: str
    task: TrainModel
    stages: Mapping[str, StagePlan]
    tables: Tables
    folder: pathlib.Path
    draws: Draws
    key: bytes
    salt: int
    tell: Callable[[str], None]
    whole: Collection[str] = ()
    drawing: Drawing = dataclasses.field(default_factory=Drawing)

    def refuse_unfit(self) -> None:
        """Refuse a task or tables that public facts show to be impossible, before anything is paid for.

        Raises:
            RequestError: the task cannot be trained here, or a column is missing or has a type that does not fit its
                feature.
        """
        kernel_of(self.task, self.key)
        skeleton = Encoder.skeleton(self.task)
        for table in itertools.islice(self.tables(), 1):
            refuse_foreign(table.schema)
            empty = table.schema.empty_table()
            skeleton.encode(empty)
            skeleton.labels(empty)

    def run(self, statement: Statement, preparation: Preparation | None = None) -> Fitted:
        """Release everything, in order.

        Args:
            statement: the privacy statement of the model, for its file.
            preparation: how rows become examples, for its file.
        """
        kernel = kernel_of(self.task, self.key)  # refuses, before the first release, a task that cannot be trained here
        training, held_out = self._divided()
        encoder = self._encoder(training)
        sizes = stage_on_disk.Sizes.of(self._table(training, training_parts.users_of(self.name)))
        self.tell(f"preparing the examples of {self.name}")
        stage = self.stages[self.name]
        encoded = training.coded if isinstance(kernel, trainer.CodedKernel) else training.encoded
        examples = encoded(stage, self.folder, "encoded", encoder)
        seen, typical = None, encoder.row_norm
        if self.task.whiten:
            seen = self._whitening(encoder, examples, sizes)
            typical = seen.typical
        whitening = None if seen is None else seen.whitening
        if isinstance(kernel, trainer.CodedKernel):
            kernel = kernel.whitened(whitening)
            examples = examples.with_products(self.folder, "whitened", kernel.multiply)
        elif whitening is not None:
            examples = examples.times(self.folder, "whitened", whitening)
        kernel = penalised(kernel, self.task.steps.l2, whitening)
        clip_norm = self.task.steps.clip_norm or CLIP * typical
        multiplier = training_noise.multiplier(stage)
        reach = 1.0 if self.task.whiten else encoder.row_norm**2
        divisor = sizes.examples
        trained = trainer.train(
            kernel,
            examples.rows_for(stage),
            self.task.steps,
            clip_norm=clip_norm,
            multiplier=multiplier,
            divisor=divisor,
            reach=reach,
            draws=self.draws,
            name=self.name,
            tell=lambda step: self.tell(f"training {self.name}: step {step} of {self.task.steps.steps}"),
            noisy_sum=functools.partial(self.drawing.noisy_sum, stage),
            sampler=functools.partial(self.drawing.sampler, stage),
        )
        artefact = Artefact(
            task=self.task,
            encoder=encoder,
            parameters=trained.parameters,
            whitening=whitening,
            privacy=statement,
            preparation=preparation or Preparation(),
            path=trained.path,
        )
        self.tell(f"evaluating {self.name}")
        found = self._evaluation(artefact, held_out)
        if seen is not None:
            rate = self.task.steps.learning_rate or trainer.default_rate(kernel, reach)
            of_gradient = float(multiplier) * clip_norm / trainer.scale_of(divisor, self.task.steps)
            stddevs = weight_errors.stddevs(
                self.task, trained.parameters, seen, found, gradient_stddev=of_gradient, learning_rate=rate
            )
            artefact = dataclasses.replace(artefact, weight_stddevs=stddevs)
        return Fitted(artefact=artefact, evaluation=found)

    def _divided(self) -> tuple[TrainingUnits, HeldOutUnits]:
        """The examples, by the group of their units."""
        everybody = AllUnits(tables=self.tables, unit=self.task.unit_columns, key=self.key, held_out=self.task.held_out)
        return everybody.divided()

    def _encoder(self, training: TrainingUnits) -> Encoder:
        numbers, categories = training_parts.binned(self.task), training_parts.chosen(self.task)
        edges: dict[str, tuple[float, ...]] = {}
        if numbers:
            released = self._table(training, training_parts.bins_of(self.name))
            edges = {
                name: stage_on_disk.edges_of(released, name, number, whole=number.column in self.whole)
                for name, number in numbers.items()
            }
        vocabulary = {
            name: stage_on_disk.categories_of(
                self._table(training, training_parts.vocabulary_of(self.name, name)), category, "users"
            )
            for name, category in categories.items()
        }
        return Encoder.of(self.task, edges=edges, vocabulary=vocabulary)

    def _table(self, training: TrainingUnits, name: str) -> pa.Table:
        """A released table of the training units, drawn once."""
        if self.draws.get(name) is None:
            self.tell(f"releasing {name}")
            stage = self.stages[name]
            released = stage_on_disk.release(stage, training.rows_for(stage), self.salt, self.drawing.table)
            content = io.BytesIO()
            pyarrow.parquet.write_table(released, content)
            self.draws.keep(name, content.getvalue())
        kept = self.draws.get(name)
        assert kept is not None
        return pyarrow.parquet.read_table(io.BytesIO(kept))

    def _whitening(
        self, encoder: Encoder, examples: TrainingExamples, sizes: stage_on_disk.Sizes
    ) -> seen_columns.SeenColumns:
        """The matrix, and the norm of a typical whitened row: both follow from the released moments.

        Columns whose moment is within its noise have no part in either.
        """
        name = training_parts.moments_of(self.name)
        stage = self.stages[name]
        noise = self.drawing.noisy_sum(
            stage,
            size=moments.size(encoder.width),
            norm=moments.norm(encoder.row_norm),
            multiplier=training_noise.multiplier(stage),
            slack=moments.SLACK,
        )
        if self.draws.get(name) is None:
            self.tell(f"releasing {name}")
            released = noise.release(moments.clipped_moments(examples.rows_for(stage), encoder.row_norm))
            self.draws.keep(name, released.astype("<f8").tobytes())
        kept = self.draws.get(name)
        assert kept is not None
        noisy = np.frombuffer(kept, "<f8")
        return seen_columns.seen(noisy, sizes.users, noise.stddev, encoder.one_of)

    def _evaluation(self, artefact: Artefact, held_out: HeldOutUnits) -> evaluation.Evaluation:
        stage = self.stages[training_parts.evaluation_of(self.name)]
        counted = (self._counted(artefact, table) for table in held_out.rows_for(stage))
        released = stage_on_disk.release(stage, counted, self.salt, self.drawing.table)
        counts, stddevs = (released.column(name)[0].as_py() for name in ("cells", "cells_stddev"))
        return evaluation.summary(self.task, counts, stddevs[0])

    def _counted(self, artefact: Artefact, table: pa.Table) -> pa.Table:
        """Held-out examples, each with the cell in which it counts."""
        labels = artefact.encoder.labels(table)
        model = self.task.model
        named = scoring.own_code(self.task, model.name, "model") if isinstance(model, JaxModel) else None
        cells = evaluation.cells(self.task, artefact.scores(table, jax_model=named, alone=True), labels)
        columns = {name: table.column(name) for name in self.task.unit_columns}
        columns[training_parts.CELL] = pa.array(cells)
        return pa.table(columns)


def train(
    plan: Plan,
    name: str,
    tables: Tables,
    output: str | os.PathLike[str],
    *,
    run: int | None = None,
    whole: Collection[str] = (),
) -> Fitted:
    """Train a stage of a plan in one process, once, and write its files.

    For pipelines of your own; `dp-pipelines run` does the same with a ledger, from which a killed run can continue.

    Args:
        plan: the plan with a train stage of this name.
        name: the name of the stage.
        tables: returns all examples at each call; each table holds all examples of its units
            (`transforms.examples.BoundedExamples` writes such files, `training.examples.bounded_examples.tables` reads them).
        output: the folder to write, which must not exist.
        run: which run, if the plan is for several.
        whole: the columns of features that hold whole numbers alone, as is publicly known: bins are cut between them.

    Raises:
        RequestError: there is no such stage or run, the folder exists, the model needs a library that is not installed,
            or this process has already drawn this run of the stage, which the plan pays for once.
    """
    if name not in plan.trained:
        message, hint = "is no train stage of the plan", "train stages: " + (", ".join(plan.trained) or "none")
        raise RequestError(field=f"stage {name!r}", message=message, hint=hint)
    task = plan.trained[name]
    refuse_missing(task.model)
    payment = (plan[name] if run is None else plan[name, run]).payment
    with staging.staging_folder(output) as folder:
        private = folder / f"numbers{staging.UNFINISHED}"
        private.mkdir(mode=0o700)
        one = Fit(
            name=name,
            task=task,
            stages=plan.round(1 if run is None else run).stages,
            tables=tables,
            folder=private,
            draws=InMemory(),
            key=plan.digest.encode(),
            salt=int(entropy.words(1)[0]),
            tell=lambda text: None,
            whole=whole,
        )
        unit = manifest.unit_in_words(task.unit_columns)
        spent = plan.accounted
        one.refuse_unfit()
        pay([(name, payment)])
        fitted = one.run(Statement(unit=unit, plan=plan.digest, epsilon=spent["epsilon"], delta=spent["delta"]))
        write(fitted, folder)
        staging.publish_folder(folder, output)
    return fitted


def write(fitted: Fitted, folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Write the files of a train stage into a folder, and return the path of each by its name."""
    written = fitted.artefact.save(folder)
    written[EVALUATION] = folder / EVALUATION
    written[EVALUATION].write_text(fitted.evaluation.text(), encoding="utf-8")
    return written
