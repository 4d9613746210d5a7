"""How many examples a property test looks at: fewer where a run must be quick and the same, more where it explores.

In: two numbers. Out: one of them. Holds: `make test-all` explores (tests/conftest.py).
"""

from hypothesis import settings


def examples(repeated: int, explored: int) -> int:
    """Of the profile in use.

    >>> examples(30, 300) in (30, 300)
    True
    """
    return explored if settings.get_current_profile_name() == "explore" else repeated
