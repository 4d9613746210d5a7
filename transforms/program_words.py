"""Puts hints of the library into the words of programs.

In: an error about the type of a column, whose hint names the job file's `columns:`. Out: the same error with a hint for a Beam
program. Holds: field and message stay. Not covered: job files and Beam YAML, which have `columns:`.
"""

from dp_pipelines.errors import RequestError

FOR_JOBS = ", e.g. columns: {"
"""How kernels and training begin the part of a hint that only a job file can follow."""

FOR_PROGRAMS = " in a step before, e.g. with beam.Map, and declare the type of what it makes"


def for_programs(error: RequestError) -> RequestError:
    """Return the error with a hint that a Beam program can follow.

    >>> hint = 'cast it first, e.g. columns: {m: "CAST(n AS DOUBLE)"}'
    >>> for_programs(RequestError(field="column 'n'", message="is no number", hint=hint)).hint
    'cast it first in a step before, e.g. with beam.Map, and declare the type of what it makes'
    """
    hint, is_for_jobs, _ = error.hint.partition(FOR_JOBS)
    if not is_for_jobs:
        return error
    return type(error)(field=error.field, message=error.message, hint=hint + FOR_PROGRAMS)
