"""Base classes of the public transforms.

In: arguments of a transform. Out: base classes. Holds: arguments are known when the pipeline is built; rows are never handed on
as they are.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

import apache_beam as beam
from apache_beam.options.value_provider import ValueProvider

from dp_pipelines.errors import RequestError


class PublicTransform(beam.PTransform):
    """Base of all public transforms. Dataclasses call its constructor when their fields have their values.

    Raises:
        RequestError: an argument is a `ValueProvider`.
    """

    def __init__(self) -> None:
        super().__init__()
        for name, value in vars(self).items():
            refuse_value_provider(name, value)


def refuse_value_provider(name: str, value: object) -> None:
    """Refuse an argument whose value is known only when a template runs, alone or in a list or mapping.

    Args:
        name: of the argument.
        value: any.

    Raises:
        RequestError: it is one, or holds one.
    """
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    if isinstance(value, ValueProvider) or any(isinstance(one, ValueProvider) for one in inner):
        raise RequestError(
            field=name,
            message="is a ValueProvider, and a plan is fixed when the pipeline is built",
            hint="declare the option with add_argument, and launch a flex template, which builds the pipeline with its "
            "values; the .get() of a ValueProvider works only in a pipeline that runs",
        )


class ReleaseTransform(PublicTransform):
    """Base of transforms that read rows of people."""

    def with_exception_handling(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: it would hand rows on as they are.

        Raises:
            RequestError: always.
        """
        raise RequestError(
            field="with_exception_handling",
            message="would hand rows on as they are, beside the release",
            hint="leave it out: no row can fail here, since a cell that does not fit its column is null",
        )
