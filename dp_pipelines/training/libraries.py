"""Which models need optional libraries.

In: a model. Out: nothing, or an error that says what to install, before anything is read. Holds: nothing is imported. Not
covered: whether an installed library works.
"""

import importlib.util

from dp_pipelines.errors import RequestError
from dp_pipelines.query.federate_model import FederateModel
from dp_pipelines.query.models.pate_model import PateModel
from dp_pipelines.query.train_model import MLP, JaxModel, Model

LOCAL = (FederateModel, PateModel)
"""Models that clients or teachers train, in compiled loops."""


def refuse_missing(model: Model, *, local: bool = False) -> None:
    """Refuse a model whose libraries are not installed.

    Args:
        model: what is trained.
        local: whether it is one of `LOCAL`.

    Raises:
        RequestError: what is missing.

    >>> from dp_pipelines.query.train_model import LinearModel
    >>> refuse_missing(LinearModel())
    """
    if isinstance(model, MLP):
        _refuse_without("numba", hint="pip install 'dp-pipelines[train]', or train a linear model")
    elif local:
        _refuse_without("numba", hint="pip install 'dp-pipelines[train]'")
    if isinstance(model, JaxModel):
        _refuse_without("jax", "jax_privacy", hint="pip install 'dp-pipelines[train]'")


def compiles() -> bool:
    """Whether the compiler of loops over numbers is installed, which the fast path of linear models needs."""
    return importlib.util.find_spec("numba") is not None


def _refuse_without(*names: str, hint: str) -> None:
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        raise RequestError(field="model", message=f"needs {' and '.join(missing)}, not installed here", hint=hint)
