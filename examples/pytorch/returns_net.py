"""A small PyTorch network that learns through the clipped sums of dp_pipelines: named by the job file beside this module.

In: parameters as one vector, rows of features. Out: the gradient of the rows of one customer, scores. Holds: a gradient
depends on its arguments alone; clipping, noise and the budget are the library's. Not covered: layers that look at other
customers' rows (batch normalisation) or draw random numbers (dropout), which the guarantee does not allow.

    pip install torch
    python ../shop/make_rows.py
    PYTHONPATH=. dp-pipelines run returns.yaml --output out/returns
    PYTHONPATH=. dp-pipelines predict out/returns 'data/*.parquet' --jax-model returns_net:net --output scores.parquet
"""

import numpy as np
import torch

WIDTH, HIDDEN = 18, 8
"""Columns of the features, as `dp-pipelines plan` prints them, and units of the hidden layer."""


class Net:
    """One hidden layer with tanh, and the logistic loss."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self.module = torch.nn.Sequential(torch.nn.Linear(WIDTH, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, 1))
        self.size = sum(parameter.numel() for parameter in self.module.parameters())

    def initial(self) -> np.ndarray:
        """Where training begins: public numbers, the same in each run."""
        drawn = np.random.default_rng(7).normal(0, WIDTH**-0.5, self.size)
        drawn[-HIDDEN - 1 :] = 0  # the last layer: at first the network says one half of everybody
        return drawn

    def gradient(self, parameters: np.ndarray, features: np.ndarray, labels: np.ndarray) -> np.ndarray:
        """Of the loss of all rows of one customer, added up."""
        self._load(parameters)
        self.module.zero_grad()
        said = self.module(torch.from_numpy(features))[:, 0]
        wanted = torch.from_numpy(labels.astype(np.float32))
        torch.nn.functional.binary_cross_entropy_with_logits(said, wanted, reduction="sum").backward()
        return np.concatenate([parameter.grad.numpy().ravel() for parameter in self.module.parameters()])

    def scores(self, parameters: np.ndarray, features: np.ndarray) -> np.ndarray:
        """The log odds of each row."""
        self._load(parameters)
        with torch.no_grad():
            return self.module(torch.from_numpy(features.astype(np.float32)))[:, 0].numpy()

    def _load(self, parameters: np.ndarray) -> None:
        torch.nn.utils.vector_to_parameters(torch.from_numpy(parameters.astype(np.float32)), self.module.parameters())


net = Net()
