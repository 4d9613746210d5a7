"""What all transforms that read rows of people share.

In: nothing. Out: a base class. Holds: rows are never handed on as they are.
"""

from typing import Any, NoReturn

import apache_beam as beam

from dp_pipelines.errors import RequestError


class ReleaseTransform(beam.PTransform):
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
