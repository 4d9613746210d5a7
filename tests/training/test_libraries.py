"""A model whose library is not installed is refused before anything is read, with what to install."""

import importlib.util
from typing import Any

import pytest

from dp_pipelines.errors import RequestError
from dp_pipelines.query.train_model import MLP, JaxModel, LinearModel, Model
from dp_pipelines.training.libraries import refuse_missing


@pytest.mark.parametrize(
    ("model", "missing", "named"),
    [
        (MLP(hidden=(3,)), "numba", "needs numba, not installed here"),
        (JaxModel(name="a:b", parameters=3), "jax_privacy", "needs jax_privacy, not installed here"),
    ],
)
def test_what_is_missing_is_named_with_a_hint(
    model: Model, missing: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec

    def without(name: str, *more: Any) -> Any:
        return None if name == missing else found(name, *more) or object()

    monkeypatch.setattr(importlib.util, "find_spec", without)
    with pytest.raises(RequestError, match=rf"{named}; pip install 'dp-pipelines\[train\]'"):
        refuse_missing(model)
    refuse_missing(LinearModel())
    monkeypatch.undo()
    refuse_missing(MLP(hidden=(3,)))
