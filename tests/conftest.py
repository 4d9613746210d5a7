"""What every test shares: the settings of hypothesis, caches of its own, a watch on the one import root, and its processor time.

In: nothing. Out: fixtures that act on their own. Holds: no test uses the user's folders for caches and state, and no test run
loads `transforms` or `jobs` under a bare name. Helpers are imported as `tests.helpers.<name>`.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests.helpers.beam_options import pytest_runtest_protocol  # noqa: F401 - a hook
from tests.helpers.collection import COMPILED, keep_compiled, pytest_collection  # noqa: F401 - a hook
from tests.helpers.cpu_times import (  # noqa: F401 - hooks
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_runtest_setup,
    pytest_terminal_summary,
)
from tests.helpers.engines_first import pytest_collection_modifyitems, pytest_xdist_make_scheduler  # noqa: F401 - hooks
from tests.helpers.small_disks import real_disk, small_disk  # noqa: F401 - fixtures

# OpenBLAS reads this when NumPy is loaded, later than here. On a busy machine its threads wait for each other in loops: a product
# of two small matrices takes 0.7 s of processor time in place of 0.01. Our own kernels give it one thread anyway.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Processes that tests start must find `tests.<room>`: jax-privacy installs a folder `tests` of its own, which would hide ours.
sys.path.append(str(Path(__file__).resolve().parents[1]))

# Before any module of tests is imported.
keep_compiled()

# A slow example is no failure: the machine is shared. `make test` and CI look at the same examples in each run, so that a run is
# red by what changed and can be repeated. `make test-all` looks at new ones (`explore`, with a seed that it prints) and
# keeps those that fail; what it finds is written beside its test as `@example`.
hypothesis.settings.register_profile("repeat", deadline=None, derandomize=True, database=None, print_blob=True)
hypothesis.settings.register_profile("explore", deadline=None, derandomize=False, print_blob=True)
hypothesis.settings.load_profile("repeat")

assert callable(providers.is_local_module_file), (
    "hypothesis has no such function any more: see tests/test_determinism.py"
)
everything_local = providers.is_local_module_file


def is_local_module_file(path: str) -> bool:
    """Whether hypothesis takes constants of this module as examples: never where examples repeat.

    Which modules are loaded depends on the tests that the same worker ran before.
    """
    return hypothesis.settings.get_current_profile_name() == "explore" and everything_local(path)


providers.is_local_module_file = is_local_module_file


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """For generators that tests make themselves: the same number in each run, but the printed one where tests explore."""
    return int(request.config.getoption("--hypothesis-seed") or 0)


@pytest.fixture(scope="session", autouse=True)
def own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Point the user's folders for caches and state to temporary ones and keep logs empty, here and in processes started."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        # Commands that tests start find their modules compiled, as after an installation: that saves a small one a third.
        patch.setenv("PYTHONPYCACHEPREFIX", str(COMPILED))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        patch.setenv("MPLBACKEND", "Agg")
        patch.delenv("COLUMNS", raising=False)  # CI sets it, for the lines of pytest alone
        patch.setenv("DP_PIPELINES_PROGRESS_SECONDS", "0")  # no line whose number depends on how busy the machine is
        yield folder


@pytest.fixture(scope="session", autouse=True)
def one_import_root() -> Iterator[None]:
    """Fail a run that loaded our folders under a bare name: those are second modules with second coders."""
    yield
    bare = {name for name in sys.modules if name.partition(".")[0] in ("transforms", "jobs")}
    assert not bare, f"write dp_pipelines.transforms and dp_pipelines.jobs; loaded under a bare name: {sorted(bare)}"


@pytest.fixture(scope="session", autouse=True)
def own_folder() -> Iterator[None]:
    """Fail a run in which a test made a ledger or a release in the checkout, which a commit may then take with it."""
    places = [Path(__file__).resolve().parents[1] / name for name in ("dp-ledger.sqlite", "dp-releases")]
    before = {place for place in places if place.exists()}
    yield
    made = sorted(place.name for place in places if place.exists() and place not in before)
    assert not made, f"a test leaves these in the checkout; let it change into a folder of its own: {made}"
