"""Clip norm, learning rate and averaging of federated rounds, where a job leaves them open.

In: the task, the norm of a typical row of features, the rate that suits steps without noise. Out: what rounds take. Holds: public
and released numbers decide it. Not covered: how good a model this leads to.
"""

from dp_pipelines.query.federate_model import FederateModel
from dp_pipelines.training.step_defaults import CLIP_OF_ONE, StepDefaults


def round_defaults(task: FederateModel, *, typical: float, largest_rate: float) -> StepDefaults:
    """What the job declares, or else what follows from public numbers.

    A mean gradient is about `CLIP_OF_ONE` norms of a typical row long; an update of federated averaging is about as many of the
    client's own steps of that length as it takes where its examples fit into one step.

    Args:
        task: what is learnt.
        typical: the norm of a typical row of features.
        largest_rate: the rate that suits gradient steps without noise.

    >>> from dp_pipelines import BinaryLabel, Number
    >>> from dp_pipelines.query.federate_model import Rounds
    >>> task = FederateModel(privacy_unit="u", label=BinaryLabel(column="y"), expected_clients=100, steps=Rounds(local_epochs=2),
    ...                      features={"x": Number(column="x", min_value=0, max_value=1)})
    >>> found = round_defaults(task, typical=2.0, largest_rate=4.0)
    >>> round(found.clip_norm, 3), found.learning_rate, found.averaged
    (0.6, 1.0, 20)
    """
    rounds = task.steps
    averages = rounds.method == "fedavg"
    moved = rounds.settled_rate * (rounds.local_epochs or 1) if averages else 1.0
    return StepDefaults(
        clip_norm=rounds.clip_norm or CLIP_OF_ONE * typical * moved,
        learning_rate=rounds.learning_rate or (1.0 if averages else largest_rate),
        averaged=rounds.averaged,
    )
