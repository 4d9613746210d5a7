"""The kernel of a task: what computes clipped gradient sums for its kind of model.

In: a task, public bytes that fix where training begins. Out: a kernel (`trainer.Kernel`). Holds: Numba and JAX are imported for
the models that need them alone; a machine that cannot train a model is refused here, whether or not a unit ever comes.

May import train_model, training.{libraries, linear, mlp, jax_model}.
"""

from typing import TYPE_CHECKING

from dp_pipelines.train_model import MLP, LinearModel, TrainModel
from dp_pipelines.training.libraries import refuse_missing
from dp_pipelines.training.linear import LinearKernel

if TYPE_CHECKING:
    from dp_pipelines.training.trainer import Kernel


def kernel_of(task: TrainModel, key: bytes) -> "Kernel":
    """The kernel of a task.

    Args:
        task: what is learnt.
        key: public bytes, from which a network's first weights are made.

    Raises:
        RequestError: the model needs a library that is not installed.
        DpError: this machine cannot train it, see `check_places` of the kernels.
    """
    if isinstance(task.model, LinearModel):
        return LinearKernel(width=task.width, label=task.label)
    refuse_missing(task.model)
    if isinstance(task.model, MLP):
        from dp_pipelines.training.mlp import MLPKernel

        network = MLPKernel(width=task.width, label=task.label, hidden=tuple(task.model.hidden), key=key)
        network.check_places()
        return network
    from dp_pipelines.training.jax_model import JaxKernel

    other = JaxKernel.of(task)
    other.check_places()
    return other
