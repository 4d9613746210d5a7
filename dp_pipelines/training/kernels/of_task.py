"""The kernel of a task, which computes clipped gradient sums for its kind of model.

In: a task, public bytes that fix the initial parameters. Out: a kernel (`protocols.Kernel`). Holds: Numba and JAX are
imported only for models that use them; without Numba a linear model is trained over columns instead of codes, which is
as private and slower; a machine that cannot train a model is refused here, whether or not any unit follows.
"""

from typing import TYPE_CHECKING

import numpy as np

from dp_pipelines.query.federate_model import FederateModel
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import MLP, LinearModel, TrainModel
from dp_pipelines.training import scoring
from dp_pipelines.training.features.encoder import layout_of
from dp_pipelines.training.federated.local_updates import LocalUpdates
from dp_pipelines.training.kernels.linear import LinearKernel
from dp_pipelines.training.kernels.own_gradients import GradientKernel
from dp_pipelines.training.libraries import compiles, refuse_missing
from dp_pipelines.training.teachers import votes

if TYPE_CHECKING:
    from dp_pipelines.training.kernels.protocols import Kernel


def kernel_of(task: TrainModel, key: bytes) -> "Kernel":
    """The kernel of a task.

    Args:
        task: what to learn.
        key: public bytes, from which a network's first weights are made.

    Raises:
        RequestError: the model needs a library that is not installed, or names an object that is not a model.
        DpError: this machine cannot train it, see `check_places` of the kernels.
    """
    if isinstance(task, FederateModel):
        return _compiled(task, LocalUpdates.of(task, key))
    if isinstance(task, PateModel):
        return _compiled(task, votes.learner(task, key))
    if isinstance(task.model, LinearModel):
        return _coded(task) if compiles() else _over_columns(task)
    refuse_missing(task.model)
    if isinstance(task.model, MLP):
        from dp_pipelines.training.kernels.mlp import MLPKernel

        network = MLPKernel(width=task.width, label=task.label, hidden=tuple(task.model.hidden), key=key)
        network.check_places()
        return network
    from dp_pipelines.training.kernels.jax_model import JaxKernel, resolve

    own = resolve(task.model)
    other: JaxKernel | GradientKernel
    if hasattr(own, "gradient"):
        other = GradientKernel(model=own, size=task.model.parameters)
        other.check(task.width)
    else:
        other = JaxKernel.of(task)
        other.check_places()
    # Detect an object without scores here, not in the evaluation at the end.
    rows = np.zeros((2, task.width), np.float32)
    for some in (rows[:1], rows):
        scoring.scores(task, other.initial(), None, some, jax_model=own)
    return other


def _compiled(task: TrainModel, local: LocalUpdates) -> "Kernel":
    """What clients or teachers compute, in place of gradients."""
    refuse_missing(task.model, local=True)
    local.compile()
    return local


def _coded(task: TrainModel) -> "Kernel":
    """A linear model over codes; over columns where Numba is installed and does not fit the other libraries."""
    try:
        from dp_pipelines.training.kernels.coded_linear import CodedLinear
    except ImportError:
        return _over_columns(task)
    layout = layout_of(task.features, task.pairs)
    linear = CodedLinear(layout=layout, label=task.label, class_weights=task.steps.relative_weights)
    linear.compile(sampled=task.steps.sampling_rate < 1)
    return linear


def _over_columns(task: TrainModel) -> LinearKernel:
    return LinearKernel(width=task.width, label=task.label, class_weights=task.steps.relative_weights)
