"""Sums that nobody sees in parts: Flower's SecAgg+ opens the exact sum of lattice integers, with drop-outs too."""

import importlib.util
import json
import pathlib
import subprocess
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tests.helpers.examples import examples
from tests.helpers.source import ROOT

FOLDER = ROOT / "examples" / "secure_sums"
ENVIRONMENT = ROOT / ".venv-secure-sums"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("secure_sums_example", FOLDER / "sums.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUMS = loaded()


def refuse_missing() -> None:
    if not (ENVIRONMENT / "installed").is_file():
        pytest.skip("Flower's environment is missing: run `make .venv-secure-sums/installed`")


@settings(max_examples=examples(100, 1000))
@given(arrays.arrays(np.float64, (3, 7), elements=st.floats(width=64)))
def test_whatever_a_client_has_its_integers_are_within_the_clip_norm(updates: np.ndarray) -> None:
    numbers = SUMS.on_lattice(updates)
    assert ((numbers.astype(object) ** 2).sum(axis=1) <= SUMS.STEPS**2).all()


def test_the_noise_is_the_smallest_that_makes_one_clients_update_private() -> None:
    """A Gaussian mechanism of multiplier 4.2247 is (1, 1e-6)-private, by its closed form."""
    assert float(SUMS.scale()) / SUMS.STEPS == pytest.approx(4.2247, rel=1e-3)


@pytest.mark.parametrize("dropped", [(), (0,), (3, 7, 19)])
def test_the_opened_sum_is_exact_at_both_ends_of_the_range_and_with_drop_outs(
    tmp_path: pathlib.Path, dropped: tuple[int, ...]
) -> None:
    refuse_missing()
    made = np.random.default_rng(3)
    numbers = made.integers(-(2**21), 2**21, (20, 40), endpoint=True)
    numbers[:, 0], numbers[:, 1] = 2**21, -(2**21)
    sums = SUMS.opened(numbers, dropped)
    stayed = np.delete(np.arange(20), dropped)
    assert ((sums - numbers[stayed].sum(axis=0)) % 2**32 == 0).all()
    assert (sums == numbers[stayed].sum(axis=0)).all()


def test_what_is_opened_with_too_many_drop_outs_is_nothing(tmp_path: pathlib.Path) -> None:
    refuse_missing()
    with pytest.raises(subprocess.CalledProcessError):
        SUMS.opened(np.ones((20, 3), np.int64), tuple(range(12)))


def test_what_the_server_gets_from_a_client_is_not_what_the_client_has() -> None:
    refuse_missing()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import numpy as np, secagg, json\n"
        "seen = []; real = secagg.Client.answer\n"
        "def answer(self, message):\n"
        "    reply = real(self, message)\n"
        "    key = secagg.Key.MASKED_PARAMETERS\n"
        "    told = reply.content.config_records[secagg.RECORD_KEY_CONFIGS]\n"
        "    if key in told: seen.append(np.load(__import__('io').BytesIO(told[key][1]), allow_pickle=False).tolist())\n"
        "    return reply\n"
        "secagg.Client.answer = answer\n"
        "secagg.opened_sum(np.zeros((20, 200), np.int64)); print(json.dumps(seen))\n"
    )
    python = ENVIRONMENT / "bin" / "python"
    done = subprocess.run([python, "-c", script, str(FOLDER)], capture_output=True, text=True, check=True)
    masked = np.array(json.loads(done.stdout.splitlines()[-1]))
    assert masked.shape == (20, 200)
    # Uniform below 2**32: 4,000 numbers, none of whose quarters has fewer than 800 (nine standard deviations).
    assert np.histogram(masked, bins=4, range=(0, 2**32))[0].min() > 750
    assert (masked != 2**21).all()
