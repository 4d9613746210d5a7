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
from dp_pipelines.query.federate_model import FederateModel
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import TrainModel
from dp_pipelines.release import gate, manifest, staging
from dp_pipelines.training import (
    candidate_choice,
    counted_examples,
    evaluation,
    single_features,
    stage_on_disk,
    step_defaults,
    trainer,
    weight_errors,
)
from dp_pipelines.training.artefact import Artefact
from dp_pipelines.training.candidate_choice import ChosenCandidate
from dp_pipelines.training.description import Preparation, Statement
from dp_pipelines.training.drawing import Drawing
from dp_pipelines.training.examples.groups import AllUnits, HeldOutUnits, Tables, TrainingExamples, TrainingUnits
from dp_pipelines.training.examples.split import refuse_foreign
from dp_pipelines.training.features import input_types, moments, seen_columns
from dp_pipelines.training.features.encoder import Encoder
from dp_pipelines.training.federated.round_defaults import round_defaults
from dp_pipelines.training.kept_draws import Draws, InMemory
from dp_pipelines.training.kernels import protocols
from dp_pipelines.training.kernels.of_task import kernel_of
from dp_pipelines.training.kernels.penalty import penalised
from dp_pipelines.training.libraries import LOCAL, refuse_missing
from dp_pipelines.training.teachers import public_examples
from dp_pipelines.training.teachers.votes_fit import VotesFit

EVALUATION = "evaluation.json"

FEATURES = b"2"
"""How features follow from releases: kept as `name.features` before the first of them. Version 0.1.0 kept none."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """What a train stage releases."""

    artefact: Artefact
    evaluation: evaluation.Evaluation


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Prepared:
    """What the steps begin with: the same for all candidates."""

    kernel: protocols.Kernel
    examples: TrainingExamples
    encoder: Encoder
    seen: seen_columns.SeenColumns | None
    typical: float
    sizes: stage_on_disk.Sizes | None
    formerly: bool
    statement: Statement
    preparation: Preparation


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class _Trained:
    """A model that the steps have led to, and what the error bars of its weights follow from."""

    artefact: Artefact
    taken: TrainModel
    learning_rate: float
    gradient_stddev: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """One run of a train stage.

    Args:
        name: the name of the stage.
        task: what to learn.
        stages: the frozen parts of the stage, by name (`training_parts`); others are ignored.
        tables: returns all examples at each call, in one order; each table holds whole units.
        folder: an existing, private folder.
        draws: keeps what later steps depend on.
        key: divides the units; the same for all runs of a plan, and not secret.
        salt: the run's own 64-bit number, which decides which contributions are kept.
        tell: is told about progress, in public words.
        whole: the columns that hold whole numbers, by their public types: never by what tables of examples hold, since there may
            be none.
        public: of a model that learns from votes, the table of public examples.
        drawing: draws; INTERNAL, for the audit and tests.
        candidate: which of several candidates this is the fit of, from 1; INTERNAL, `run` makes one for each.
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
    public: pa.Table | None = None
    drawing: Drawing = dataclasses.field(default_factory=Drawing)
    candidate: int = 1

    def refuse_unfit(self) -> None:
        """Refuse a task or tables that public facts show to be impossible, before anything is paid for.

        Raises:
            RequestError: the task cannot be trained here, or a column is missing or of a type that does not fit.
        """
        kernel_of(self.task, self.key)
        if isinstance(self.task, PateModel):
            public_examples.refuse_unfit(self.task, self.public)
        skeleton = Encoder.skeleton(self.task)
        for table in itertools.islice(self.tables(), 1):
            refuse_foreign(table.schema)
            empty = table.schema.empty_table()
            skeleton.encode(empty)
            skeleton.labels(empty)
            if (wrong := input_types.of_groups(table.schema, self.task)) is not None:
                raise wrong

    def run(self, statement: Statement, preparation: Preparation | None = None) -> Fitted:
        """Release everything, in order.

        Args:
            statement: the privacy statement of the model, for its file.
            preparation: how rows become examples, for its file.
        """
        kernel = kernel_of(self.task, self.key)  # refuses, before the first release, a task that cannot be trained here
        if isinstance(self.task, PateModel):
            return self._voted(self.task, statement, preparation or Preparation())
        training, held_out = self._divided()
        formerly = self._begun_formerly()
        released = functools.partial(self._table, training)
        encoder = stage_on_disk.encoder_of(self.task, self.name, released, self.whole, formerly=formerly)
        sizes = None
        if training_parts.needs_sizes(self.task):
            sizes = stage_on_disk.Sizes.of(self._table(training, training_parts.users_of(self.name)))
        self.tell(f"preparing the examples of {self.name}")
        stage = self.stages[self.name]
        encoded = training.coded if isinstance(kernel, protocols.CodedKernel) else training.encoded
        examples = encoded(stage, self.folder, "encoded", encoder)
        seen, typical = None, encoder.row_norm
        if sizes is not None and self.task.whiten:
            seen = self._whitening(encoder, examples, sizes, formerly)
            typical = seen.typical
        whitening = None if seen is None else seen.whitening
        if isinstance(kernel, protocols.CodedKernel):
            kernel = kernel.whitened(whitening)
            examples = examples.with_products(self.folder, "whitened", kernel.multiply)
        elif whitening is not None:
            examples = examples.times(self.folder, "whitened", whitening)
        of = _Prepared(
            kernel=kernel,
            examples=examples,
            encoder=encoder,
            seen=seen,
            typical=typical,
            sizes=sizes,
            formerly=formerly,
            statement=statement,
            preparation=preparation or Preparation(),
        )
        one, chosen = self._chosen(of, held_out)
        trained = one._trained(of)
        self.tell(f"evaluating {self.name}")
        artefact = trained.artefact
        found = self._evaluation(artefact, held_out)
        if seen is not None and not isinstance(self.task, FederateModel):
            noise = weight_errors.weight_noise(
                trained.taken,
                artefact.parameters,
                seen,
                found,
                gradient_stddev=trained.gradient_stddev,
                learning_rate=trained.learning_rate,
            )
            artefact = dataclasses.replace(artefact, weight_stddevs=None if noise is None else noise.stddevs)
            found = found.beside(single_features.areas(artefact.task, artefact.parameters, seen, noise))
        return Fitted(artefact=artefact, evaluation=dataclasses.replace(found, chosen=chosen))

    def _trained(self, of: "_Prepared") -> "_Trained":
        """The model of one candidate: where there are several, each is trained from the same examples."""
        stage = self.stages[self.part]
        kernel = penalised(of.kernel, self.task.steps.l2, None if of.seen is None else of.seen.whitening)
        multipliers = training_noise.multipliers(stage)
        reach = 1.0 if self.task.whiten else of.encoder.row_norm**2
        largest_rate, steps = trainer.default_rate(kernel, reach), self.task.steps
        if isinstance(self.task, FederateModel):
            divisor = stage_on_disk.declared(self.task.divisor)
            chosen = round_defaults(self.task, typical=of.typical, largest_rate=largest_rate)
        else:
            assert of.sizes is not None
            divisor = of.sizes.examples
            chosen = step_defaults.step_defaults(
                self.task,
                None if of.formerly else of.seen,  # steps go on as they were begun
                typical=of.typical,
                noise=float(max(multipliers)) / trainer.scale_of(divisor, steps),
                largest_rate=largest_rate,
                examples_of_unit=divisor / max(1.0, of.sizes.users),
            )
        steps = dataclasses.replace(steps, learning_rate=chosen.learning_rate)
        trained = trainer.train(
            kernel,
            of.examples.rows_for(stage),
            steps,
            clip_norm=chosen.clip_norm,
            multiplier=multipliers,
            divisor=divisor,
            averaged=chosen.averaged,
            sums=stage.sums[0],
            draws=self.draws,
            name=self.part,
            tell=lambda step: self.tell(f"training {self.part}: step {step} of {self.task.steps.steps}"),
            noisy_sum=functools.partial(self.drawing.noisy_sum, stage),
            sampler=functools.partial(self.drawing.sampler, stage),
        )
        rounds = isinstance(self.task, FederateModel)
        artefact = Artefact(
            task=self.task,
            encoder=of.encoder,
            parameters=trained.parameters,
            whitening=None if of.seen is None else of.seen.whitening,
            privacy=of.statement,
            preparation=of.preparation,
            path={**trained.path, **({"noise_multiplier": tuple(map(float, multipliers))} if rounds else {})},
            taken=dataclasses.asdict(chosen),
        )
        return _Trained(
            artefact=artefact,
            taken=dataclasses.replace(self.task, steps=chosen.taken(steps)),
            learning_rate=chosen.learning_rate,
            gradient_stddev=float(max(multipliers)) / trainer.scale_of(divisor, steps) * chosen.clip_norm,
        )

    def _chosen(self, of: "_Prepared", held_out: HeldOutUnits) -> "tuple[Fit, ChosenCandidate | None]":
        """The fit of the candidate that is released, drawn once; where there are none, this one.

        Of the others nothing is kept: an attempt that ends before the choice trains all of them again, and nobody saw the first.
        What is kept is the choice together with the model, so that no later attempt makes either of them anew.
        """
        candidates = self.task.steps.candidates
        if candidates is None:
            return self, None
        tasks = training_parts.candidate_fits(self.name, self.task).values()
        fits = [
            dataclasses.replace(self, task=task, candidate=number, draws=InMemory())
            for number, task in enumerate(tasks, 1)
        ]
        stage = self.stages[training_parts.choice_of(self.name)]
        if self.draws.get(stage.name) is None:
            models = [one._trained(of).artefact for one in fits]
            self.tell(f"choosing among the candidates of {self.name}")
            number = candidate_choice.choose(stage, models, held_out, self.salt, self.drawing.table)
            self.draws.keep(stage.name, candidate_choice.to_bytes(number, fits[number - 1]._last_state()))
        kept = self.draws.get(stage.name)
        assert kept is not None
        number, state = candidate_choice.from_bytes(kept)
        one = dataclasses.replace(fits[number - 1], draws=InMemory())
        one.draws.keep(one._last, state)
        return one, ChosenCandidate(number=number, candidates=candidates)

    def _voted(self, task: PateModel, statement: Statement, preparation: Preparation) -> Fitted:
        """The same of a model that learns from votes."""
        public_examples.refuse_unfit(task, self.public)
        votes = VotesFit(**{field.name: getattr(self, field.name) for field in dataclasses.fields(VotesFit)})
        training, held_out = self._divided()
        artefact = votes.student(training, statement, preparation)
        return Fitted(artefact=artefact, evaluation=self._evaluation(artefact, held_out))

    @property
    def part(self) -> str:
        """The name of the stage with the steps of this fit."""
        return training_parts.steps_of(self.name, self.candidate)

    @property
    def _last(self) -> str:
        """The name under which the state after the last step is kept."""
        return f"{self.part}.step-{self.task.steps.steps}"

    def _last_state(self) -> bytes:
        state = self.draws.get(self._last)
        assert state is not None
        return state

    def _divided(self) -> tuple[TrainingUnits, HeldOutUnits]:
        """The examples, by the group of their units."""
        everybody = AllUnits(tables=self.tables, unit=self.task.unit_columns, key=self.key, held_out=self.task.held_out)
        return everybody.divided()

    def _begun_formerly(self) -> bool:
        """Whether a version has begun this run that cut all bins at quantiles and whitened all columns.

        What that version has kept is about these: moments of its columns, parameters of its directions.
        """
        marker = f"{self.name}.features"
        if self.draws.get(marker) is not None:
            return False
        parts = [name for name in self.stages if name.startswith(f"{self.name}.")]
        if any(self.draws.get(part) is not None for part in parts):
            return True
        self.draws.keep(marker, FEATURES)
        return False

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
        self, encoder: Encoder, examples: TrainingExamples, sizes: stage_on_disk.Sizes, formerly: bool
    ) -> seen_columns.SeenColumns:
        """The matrix, and the norm of a typical whitened row: both follow from the released moments.

        Columns whose moment is within its noise have no part in either, unless the run was begun formerly.
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
        whitened = seen_columns.all_columns if formerly else seen_columns.seen
        return whitened(noisy, sizes.users, noise.stddev, encoder.one_of, encoder.parts)

    def _evaluation(self, artefact: Artefact, held_out: HeldOutUnits) -> evaluation.Evaluation:
        stage = self.stages[training_parts.evaluation_of(self.name)]
        unit, most = self.task.unit_columns, self.task.counted_examples
        celled = (evaluation.celled(artefact, table) for table in held_out.rows_for(stage))
        counted = (counted_examples.counted(table, unit, most, self.salt) for table in celled)
        released = stage_on_disk.release(stage, counted, self.salt, self.drawing.table)
        counts, stddevs = (released.column(name)[0].as_py() for name in ("cells", "cells_stddev"))
        return evaluation.summary(self.task, counts, stddevs[0])


def train(
    plan: Plan,
    name: str,
    tables: Tables,
    output: str | os.PathLike[str],
    *,
    run: int | None = None,
    whole: Collection[str] = (),
    public: pa.Table | None = None,
) -> Fitted:
    """Train a stage of a plan in one process, once, and write its files.

    For pipelines of your own; `dp-pipelines run` does the same with a ledger, from which a killed run can continue.

    Args:
        plan: the plan with a train stage of this name.
        name: the name of the stage.
        tables: returns all examples at each call, in one order; each table holds all examples of its units
            (`transforms.examples.BoundedExamples` writes such files, `training.examples.bounded_examples.tables` reads them).
        output: the folder to write, which must not exist.
        run: which run, if the plan is for several.
        whole: the columns of features that hold whole numbers alone, as is publicly known: bins are cut between them.
        public: as for `Fit`.

    Raises:
        RequestError: there is no such stage or run, the folder exists, the model needs a library that is not installed,
            or this process has already drawn this run of the stage, which the plan pays for once.
    """
    if name not in plan.trained:
        message, hint = "is no train stage of the plan", "train stages: " + (", ".join(plan.trained) or "none")
        raise RequestError(field=f"stage {name!r}", message=message, hint=hint)
    task = plan.trained[name]
    refuse_missing(task.model, local=isinstance(task, LOCAL))
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
            salt=entropy.salt_number(),
            tell=lambda text: None,
            whole=whole,
            public=public,
        )
        unit = manifest.unit_in_words(task.unit_columns)
        spent = plan.accounted
        one.refuse_unfit()
        gate.admit(
            {part: stage for part, stage in one.stages.items() if stage.reads.of == name}, plan.charged(run or 1)
        )
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
