"""The kernel of a task: what computes clipped gradient sums for its kind of model.

In: a task, public bytes that fix where training begins. Out: a kernel (`trainer.Kernel`). Holds: JAX is imported for the models
that need it alone. May import train_model, training.{linear, mlp, jax_model}.
"""

from typing import TYPE_CHECKING

from dp_pipelines.train_model import MLP, LinearModel, TrainModel
from dp_pipelines.training.linear import LinearKernel
from dp_pipelines.training.mlp import MLPKernel

if TYPE_CHECKING:
    from dp_pipelines.training.trainer import Kernel


def kernel_of(task: TrainModel, key: bytes) -> "Kernel":
    """The kernel of a task.

    Args:
        task: what is learnt.
        key: public bytes, from which a network's first weights are made.

    Raises:
        RequestError: the model needs a library that is not installed.
    """
    if isinstance(task.model, LinearModel):
        return LinearKernel(width=task.width, label=task.label)
    if isinstance(task.model, MLP):
        return MLPKernel(width=task.width, label=task.label, hidden=tuple(task.model.hidden), key=key)
    from dp_pipelines.training.jax_model import JaxKernel

    return JaxKernel.of(task)
