"""JAX models that tests name as `tests.training.jax_models:net` and alike.

In: nothing. Out: objects as dp_pipelines.training.kernels.jax_model asks for them. Holds: `net` is the network of test_mlp's
kernels.
"""

import numpy as np

from dp_pipelines.training.kernels import network

WIDTH, SHAPES = 5, network.shapes(5, (7, 4), 1)


class Net:
    """A network with logistic loss."""

    size = sum(rows * columns for rows, columns in SHAPES)

    def initial(self) -> np.ndarray:
        return network.initial(SHAPES, b"test")

    def outputs(self, parameters, rows):
        import jax.numpy as jnp

        begin, values = 0, rows
        for number, (before, after) in enumerate(SHAPES):
            layer = parameters[begin : begin + before * after].reshape(before, after)
            begin += before * after
            values = values @ layer[:-1] + layer[-1]
            values = jnp.tanh(values) if number + 1 < len(SHAPES) else values
        return values[..., 0]

    def loss(self, parameters, features, label):
        import jax

        score = self.outputs(parameters, features)
        return jax.nn.softplus(score) - label * score

    def scores(self, parameters, features):
        return self.outputs(parameters, features)


class Endless(Net):
    """It begins where no model can."""

    def initial(self) -> np.ndarray:
        return np.full(self.size, np.inf)


class Counting:
    """Its scores are the number of rows that it is asked about: what no model of ours may ever see."""

    size = 3

    def scores(self, parameters, features):
        return np.full(len(features), len(features) - 1.0)


net, endless, counting = Net(), Endless(), Counting()
