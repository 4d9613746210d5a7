"""The declaration of a model that is trained in federated rounds: clients send clipped updates, which are summed.

In: names and numbers that the owner of the job declares. Out: frozen descriptions, validated at once. Holds: nothing here depends
on data; the number by which sums are divided is declared, so the number of clients shows nowhere. Not covered: what a client
computes (`training.federated`), what it costs (`dp_pipelines.planning`).
"""

import dataclasses
from fractions import Fraction
from typing import Annotated, ClassVar, Literal, get_args

from dp_pipelines import checks
from dp_pipelines.errors import RequestError
from dp_pipelines.noise import correlation, noise_schedule
from dp_pipelines.noise.correlation import Correlation
from dp_pipelines.noise.noise_schedule import Schedule
from dp_pipelines.query.train_model import MLP, LinearModel, PositiveNumber, Steps, TrainModel

MOST_ROUNDS = 1000
"""The most rounds of one model, since the state after each round is stored."""

LOCAL_RATE = 0.2
"""The default learning rate of a client's own steps of federated averaging (docs/benchmarks/federate.md)."""

_LINEAR = LinearModel()
_OF_TRAIN = ("candidates", "l2", "class_weights")
_OF_AVERAGING = ("local_epochs", "local_examples", "local_rate")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rounds(Steps):
    """Settings of federated rounds: each publishes a model, and adds the noisy mean of the clients' updates.

    Args:
        steps: how many rounds; in a job file `rounds`.
        method: `fedavg`: each client trains from the published model, and its update is how far it got; `fedsgd`: its update is
            the mean gradient of its examples.
        local_epochs: of `fedavg`, how often a client passes over its examples in each round. Left out: 1.
        local_examples: of `fedavg`, how many examples each of a client's own steps takes. Left out: 4.
        local_rate: of `fedavg`, the learning rate of a client's own steps. Left out: 0.2.
        sampling_rate: each round takes each client with this probability, and shows nobody which; 1 takes all.
        participation: `hidden`, where nobody but this program can see who is taken into a round; `visible`, where clients or a
            network can: then each round is charged as if it took all clients.
        clip_norm: a client's update is scaled down to this L2 norm. Left out: it follows from the norm of a typical row of
            features.
        learning_rate: by which the mean update moves the published model. Left out: 1 for `fedavg`; for `fedsgd` it follows from
            how far the loss can bend.
        momentum: of the published model, from 0 to below 1.
        average: the part of the rounds, the last ones, whose models are averaged. Left out: a half.
        schedule: how the budget is spread over the rounds; the noise of a round is in inverse proportion to its part. Round r of
            `linear` has r times the part of round 1; of `exponential` each round has the same multiple of the part of the one
            before, the last 16 times that of the first at most; `linear_decreasing` and `exponential_decreasing` are the reverse.
            All of them cost the same.
        separation: each client takes part in one of so many rounds, always the same one, by a hash of its id: at most once in so
            many rounds. Left out: all take part in each.
        noise: `correlated`, where a round's noise takes back a part of that of earlier rounds, so that sums over rounds have less
            of it at the same cost; it needs `separation`. `independent` draws each round's noise by itself.
        max_noise_multiplier: the plan is refused where the budget leaves more noise than so many times the norm to a round.

    >>> Rounds(steps=60, local_epochs=2).settled_rate
    0.2
    """

    steps: Annotated[int, checks.Whole(low=1, high=MOST_ROUNDS)] = 40
    method: Literal["fedavg", "fedsgd"] = "fedavg"
    local_epochs: Annotated[int, checks.Whole(low=1, high=100)] | None = None
    local_examples: Annotated[int, checks.Whole(low=1, high=2**16)] | None = None
    local_rate: PositiveNumber | None = None
    participation: Literal["hidden", "visible"] = "hidden"
    schedule: Schedule = "constant"
    separation: Annotated[int, checks.Whole(low=1, high=MOST_ROUNDS)] | None = None
    noise: Literal["independent", "correlated"] = "independent"

    def __post_init__(self) -> None:
        for name in _OF_TRAIN:
            if getattr(self, name) is not None:
                raise RequestError(field=name, message="is for kind: train alone", hint="leave it out")
        for name, known in (
            ("method", ("fedavg", "fedsgd")),
            ("participation", ("hidden", "visible")),
            ("schedule", get_args(Schedule)),
            ("noise", ("independent", "correlated")),
        ):
            if getattr(self, name) not in known:
                raise RequestError(field=name, message="must be one of " + ", ".join(known), hint="or leave it out")
        super().__post_init__()
        for name in _OF_AVERAGING:
            if self.method != "fedavg" and getattr(self, name) is not None:
                message = "is for method: fedavg, whose clients take steps of their own"
                raise RequestError(field=name, message=message, hint="leave it out")
        if self.schedule != "constant" and self.charged_rate < 1:
            message = f"is {self.schedule}, which is not for rounds that hide which clients they take"
            hint = "write schedule: constant, or sampling_rate: 1"
            raise RequestError(field="schedule", message=message, hint=hint)
        self._check_separation()

    def _check_separation(self) -> None:
        if self.separation is not None:
            if self.sampling_rate < 1:
                message = "is for rounds that draw no sample: which clients are in a round follows from their ids"
                raise RequestError(field="separation", message=message, hint="leave out sampling_rate")
            if self.separation > self.steps:
                message = f"is more than there are rounds ({self.steps}), so that some clients would never take part"
                raise RequestError(field="separation", message=message, hint="write more rounds, or a smaller number")
        if self.noise == "correlated":
            if self.separation is None:
                message = "is correlated, which gains nothing where a client takes part in each round"
                raise RequestError(field="noise", message=message, hint="write separation: 5 beside it, for example")
            if self.schedule != "constant":
                message = f"is {self.schedule}, and noise that is correlated is spread over the rounds by itself"
                raise RequestError(field="schedule", message=message, hint="leave it out, or write noise: independent")

    @property
    def charged_rate(self) -> float:
        """Return the rate for which sampling is charged: 1 if somebody can see which clients take part.

        >>> Rounds(sampling_rate=0.1, participation="visible").charged_rate
        1.0
        """
        return 1.0 if self.participation == "visible" else self.sampling_rate

    @property
    def parts(self) -> tuple[Fraction, ...] | None:
        """Return the part of each round over the smallest; None if all are the same."""
        return noise_schedule.parts(self.schedule, self.steps)

    @property
    def correlation(self) -> Correlation | None:
        """Return how the noise of a round counts in later ones; None if it is independent."""
        if self.noise != "correlated" or self.separation is None:
            return None
        return correlation.choose(self.steps, self.separation, self.momentum, self.averaged)

    @property
    def settled_rate(self) -> float:
        """Return the learning rate of a client's own steps."""
        return LOCAL_RATE if self.local_rate is None else self.local_rate


@dataclasses.dataclass(frozen=True, kw_only=True)
class FederateModel(TrainModel):
    """A model that is trained in federated rounds under the plan's budget. A client is a privacy unit with its own rows.

    Args:
        steps: how it is fitted; in a job file `fit`.
        expected_clients: about how many clients there are, from public knowledge: the sum of their updates is divided by the
            part of it that is not held out. Every client counts the same, however many examples it has.

    >>> from dp_pipelines import BinaryLabel, Number
    >>> task = FederateModel(privacy_unit="customer", label=BinaryLabel(column="returns"), expected_clients=30_000,
    ...                      features={"visits": Number(column="visits", min_value=0, max_value=60)})
    >>> task.divisor
    24000.0
    """

    kind: ClassVar[str] = "federate"

    model: LinearModel | MLP = _LINEAR
    steps: Rounds = Rounds()
    expected_clients: Annotated[int, checks.Whole(low=1, high=2**31)]

    def __post_init__(self) -> None:
        if not isinstance(self.steps, Rounds):
            raise RequestError(field="steps", message="must be Rounds")
        if not isinstance(self.model, LinearModel | MLP):
            message = "must be linear or mlp: clients train no other model"
            raise RequestError(field="model", message=message, hint="use kind: train for a model of your own")
        super().__post_init__()

    @property
    def divisor(self) -> float:
        """Return about how many clients train: a public number that does not depend on the rows."""
        return self.expected_clients * (1 - self.held_out)
