"""Any model whose loss is a JAX function: clipped gradients by jax-privacy, added up exactly.

In: an object with a loss, parameters, a chunk of whole units, a norm. Out: the sum over units of their clipped
gradients; scores. Holds: a unit's rows are one group for `jax_privacy.clipping.clipped_grad`, which takes the norm in
float64; its result is rounded to whole steps of 2**-35 of the norm or finer, so float64 adds up without rounding and
`slack` is 0. A unit with a number that is not finite adds nothing. JAX settings change only inside calls of this
thread. Not covered: a loss that depends on more than its arguments, or draws random numbers; the guarantee requires
that it does not.
"""

# The same program always processes a unit as others with a similar number of rows. Before the first sum we try whether
# it does the same at each place (docs/proofs/training_mlp.md, 5).

# The object, found under `module:attribute`, has:
#
#     size                                        the number of parameters
#     initial()                                   (size,): where training begins; public
#     loss(parameters, features, label)           of one example: (size,) float32, (width,) float32, a float64 number -> a number
#     scores(parameters, features)                of (rows, width): (rows,) or, of classes, (rows, classes)
#
# An object that has `gradient` instead of `loss` needs no JAX: `own_gradients`.
#
# Importing it runs its author's code: only the person who names it in a plan decides that. Needs the extra `train`.

import hashlib
import importlib
import importlib.util
import math
import pathlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dp_pipelines.errors import DpError, RequestError
from dp_pipelines.query.train_model import MOST_EXAMPLES, JaxModel, TrainModel
from dp_pipelines.training.examples.store import Chunk
from dp_pipelines.training.kernels import network
from dp_pipelines.training.kernels.own_gradients import initial_of
from dp_pipelines.training.kernels.unit_blocks import blocks

Floats = NDArray[np.float64]

STEP_BITS = 36
"""A norm is between 2**35 and 2**36 steps, so that 2**16 vectors add up below 2**52."""

MARGIN = 1e-6
"""The share of the norm that remains after allowing for rounding."""

MOST_ROWS = 4096
"""Rows of a block, unless one unit has more."""

TRIED = 8
"""Places at each end of a block that `check_places` tries."""

SIZES = tuple(2**power for power in range(MOST_EXAMPLES.bit_length()))


def wide() -> AbstractContextManager[Any]:
    """Lets this thread's JAX use float64, whatever the process has set."""
    import jax

    setting: AbstractContextManager[Any] = jax.enable_x64(True)
    return setting


def resolve(model: JaxModel) -> Any:
    """The object that a model names.

    Raises:
        RequestError: the name is invalid, cannot be imported, or does not name such an object.

    >>> resolve(JaxModel(name="math:pi", parameters=3))
    Traceback (most recent call last):
    dp_pipelines.errors.RequestError: model.name: 'math:pi' has no initial, loss, scores; see dp_pipelines.training.kernels.jax_model
    """
    module, _, attribute = model.name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), attribute)):
        raise RequestError(
            field="model.name", message="must be module:attribute", hint="write e.g. my_models.returns:net"
        )
    try:
        found = getattr(importlib.import_module(module), attribute)
    except ImportError as error:
        hint = "install it, or set PYTHONPATH"
        raise RequestError(
            field="model.name", message=f"{model.name!r} cannot be imported: {error}", hint=hint
        ) from error
    except AttributeError as error:
        raise RequestError(field="model.name", message=f"{module!r} has no {attribute!r}") from error
    except Exception as error:  # whatever somebody's code may raise; there are no rows yet
        message = f"{model.name!r} cannot be imported: {type(error).__name__}: {error}"
        raise RequestError(field="model.name", message=message, hint="import it yourself") from error
    told = "gradient" if hasattr(found, "gradient") else "loss"
    missing = [name for name in ("initial", told, "scores") if not callable(getattr(found, name, None))]
    if missing:
        hint = "see dp_pipelines.training.kernels.jax_model"
        raise RequestError(field="model.name", message=f"{model.name!r} has no {', '.join(missing)}", hint=hint)
    if getattr(found, "size", None) != model.parameters:
        hint = "write its size as model.parameters"
        raise RequestError(field="model.parameters", message=f"is not the size of {model.name!r}", hint=hint)
    return found


def code_digest(model: JaxModel) -> str:
    """SHA-256 of the file of the module that a model names, in hexadecimal digits. What it imports is not in it.

    Raises:
        RequestError: there is no such file.

    >>> len(code_digest(JaxModel(name="json:loads", parameters=1)))
    64
    """
    module = model.name.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        found = None
    if found is None or found.origin is None or not pathlib.Path(found.origin).is_file():
        message = f"{model.name!r} is in no file of its own"
        raise RequestError(field="model.name", message=message, hint="name the module that defines it")
    return hashlib.sha256(pathlib.Path(found.origin).read_bytes()).hexdigest()


class JaxKernel:
    """The kernel of a JAX model. Only one thread at a time may use it.

    Args:
        model: the object, see the top of this module.
        size: the number of its parameters.
        width: the number of feature columns.
        microbatch: the most units whose gradients are in memory at a time.
        most_rows: a public bound on the rows of one unit.
    """

    slack = 0.0
    """The sum of a chunk is exact."""

    units_per_chunk = 1024

    def __init__(self, *, model: Any, size: int, width: int, microbatch: int = 64, most_rows: int = 32) -> None:
        from jax_privacy import clipping  # type: ignore[import-untyped]

        self.size = size
        self._clipping, self._model, self._width = clipping, model, width
        self._microbatch, self._most_rows = microbatch, most_rows
        self._program = self._compiled()
        self._checked = False

    @classmethod
    def of(cls, task: TrainModel) -> "JaxKernel":
        """The kernel of a task whose model is a `JaxModel`. Errors as for `resolve`."""
        assert isinstance(task.model, JaxModel)
        return cls(
            model=resolve(task.model),
            size=task.model.parameters,
            width=task.width,
            microbatch=task.model.microbatch,
            most_rows=task.max_examples_per_unit,
        )

    def initial(self) -> Floats:
        """The object's initial parameters.

        Raises:
            RequestError: it does not return such a vector.
        """
        return initial_of(self._model, self.size)

    def scores(self, parameters: Floats, features: NDArray[np.float32]) -> Floats:
        """The object's score of each row."""
        return np.asarray(self._model.scores(parameters.astype(np.float32), features), np.float64)

    def clipped_sum(self, parameters: Floats, chunk: Chunk, clip_norm: float) -> Floats:
        """The sum over the chunk's units of their summed gradients, each scaled down to `clip_norm * (1 - 1e-6)`.

        Args:
            parameters: (size,).
            chunk: at most 2**16 units.
            clip_norm: from 1e-100 to 1e100.

        Raises:
            DpError: on this machine a unit's gradient depends on its place; at the first call.
        """
        if chunk.units > 2**16:
            raise ValueError("a chunk of so many units would not be added up exactly")
        if not self._checked:
            self.check_places()
        total = np.zeros(self.size)
        for block in blocks(chunk.starts, SIZES, self._units):
            total += self._block(
                parameters, chunk.features[block.rows], chunk.labels[block.rows], block.used, clip_norm
            )
        return total * _step(clip_norm)

    def check_places(self) -> None:
        """Try whether this machine computes the same for a unit at every place. The first sum does this too.

        Raises:
            DpError: it does not.
        """
        at, same = self.initial() + network.uniform(self.size, b"parameters") / 16, True
        for size in SIZES[: math.ceil(math.log2(self._most_rows)) + 1]:
            units = self._units(size)
            drawn = network.uniform((units + 1) * size * self._width, b"rows").reshape(units + 1, size, self._width)
            sums = []
            # Vectors and tiles begin and end at the two ends.
            for place in sorted({*range(units)[:TRIED], *range(units)[-TRIED:]}):
                rows, used = drawn[1:].astype(np.float32), np.zeros((units, size), np.bool_)
                rows[place], used[place] = drawn[0], True
                sums.append(self._block(at, rows, np.zeros((units, size)), used, 1.0))
            same &= all(np.array_equal(sums[0], other) for other in sums)
        if not same:
            raise DpError(
                "on this machine a unit's gradient depends on its place among others, so that a unit would change what "
                "others add; write microbatch: 1, or take another model"
            )
        self._checked = True

    def _units(self, size: int) -> int:
        """The number of units in a block whose units take this many rows."""
        return max(1, min(self._microbatch, MOST_ROWS // size))

    def _block(
        self,
        parameters: Floats,
        features: NDArray[np.float32],
        labels: Floats,
        used: NDArray[np.bool_],
        clip_norm: float,
    ) -> Floats:
        """The sum of the clipped gradients of some units, in whole steps."""
        with wide():
            return np.asarray(self._program(parameters, features, labels, used, clip_norm, 1 / _step(clip_norm)))

    def _compiled(self) -> Callable[..., Any]:
        import jax
        from jax import numpy as jnp

        def loss(parameters: Any, features: Any, labels: Any, used: Any) -> Any:
            # Gradients are in float32 for speed; the cast returns float64, so the norm is float64 too.
            losses = jax.vmap(self._model.loss, (None, 0, 0))(parameters.astype(jnp.float32), features, labels)
            # Rows that do not count repeat one that does: zero times their gradient is then zero.
            return jnp.sum(jnp.where(used, losses, 0))

        def of_unit(parameters: Any, features: Any, labels: Any, used: Any, norm: Any, steps: Any) -> Any:
            clipped = self._clipping.clipped_grad(
                loss,
                l2_clip_norm=1 - MARGIN,
                batch_argnums=(1, 2, 3),
                keep_batch_dim=False,
                microbatch_size=1,
                # Values that are not finite stay that way and are caught below; made finite, they would be a false
                # gradient.
                nan_safe=False,
                pre_clipping_transform=lambda gradient: gradient / norm,
            )
            gradient = clipped(parameters, features[None], labels[None], used[None])
            # Comparisons with NaN are false.
            counts = (jnp.sum(gradient * gradient) <= 1 - MARGIN) & used.any()
            return jnp.where(counts, jnp.rint(gradient * (norm * steps)), 0)

        def of_block(parameters: Any, features: Any, labels: Any, used: Any, norm: Any, steps: Any) -> Any:
            units = jax.vmap(of_unit, (None, 0, 0, 0, None, None))(parameters, features, labels, used, norm, steps)
            return jnp.sum(units, axis=0)

        return jax.jit(of_block)


def _step(clip_norm: float) -> float:
    return math.ldexp(1.0, math.frexp(clip_norm)[1] - STEP_BITS)
