"""Which warnings a run of the tests shows: not those of Beam's workers whose engine hangs up first, which drown all others.

In: messages of threads that ended with an error. Out: failures. Holds: the filters are those of setup.cfg. Not covered: others.
"""

import warnings

import pytest

HANGING_UP = """Exception in thread run_worker_28-1

Traceback (most recent call last):
  File "/lib/python3.11/site-packages/apache_beam/runners/worker/data_plane.py", line 764, in _read_inputs
    for elements in elements_iterator:
grpc._channel._MultiThreadedRendezvous: <_MultiThreadedRendezvous of RPC that terminated with:
	status = StatusCode.CANCELLED
	details = "Multiplexer hanging up"
>
"""


def shown(text: str) -> bool:
    with warnings.catch_warnings(record=True) as found:
        warnings.warn(pytest.PytestUnhandledThreadExceptionWarning(text), stacklevel=1)
    return bool(found)


def test_an_engine_that_hangs_up_is_no_news() -> None:
    assert not shown(HANGING_UP)


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("apache_beam/runners/worker", "dp_pipelines/jobs"),
        ("CANCELLED", "UNAVAILABLE"),
        ("Multiplexer hanging up", "Socket closed"),
    ],
)
def test_every_other_error_of_a_thread_is_shown(part: str, other: str) -> None:
    assert part in HANGING_UP
    assert shown(HANGING_UP.replace(part, other))
