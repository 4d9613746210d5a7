"""The made-up rows: what each kind promises."""

import numpy as np
import pyarrow.parquet as pq
import pytest


def test_the_same_seed_gives_the_same_rows_and_another_seed_others(load):
    data = load("data")
    first, again, other = (data.make("even", 1_000, 100, (seed,)) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)


@pytest.mark.parametrize(("kind", "column"), [("hot_user", "user"), ("hot_key", "key")])
def test_half_of_the_rows_are_hot(load, kind, column):
    values = load("data").make(kind, 20_000, 5_000, (3,))[column].to_numpy()
    # one half of those that the even kind has elsewhere join the hot one
    others = np.mean(values != 0)
    even = np.mean(load("data").make("even", 20_000, 5_000, (3,))[column].to_numpy() != 0)
    assert others == pytest.approx(even / 2, abs=0.02)


def test_text_is_the_even_case_in_other_types(load):
    data = load("data")
    text, even = data.make("strings", 500, 50, (4,)), data.make("even", 500, 50, (4,))
    assert text["user"].to_pylist() == [f"user-{user:07d}" for user in even["user"].to_pylist()]
    assert text["key"].to_pylist() == [f"key-{key:04d}" for key in even["key"].to_pylist()]
    assert text["value"].equals(even["value"])


def test_keys_follow_zipfs_law(load):
    data = load("data")
    keys = data.make("even", 200_000, 10, (5,))["key"].to_numpy()
    shares = np.bincount(keys, minlength=data.KEYS) / len(keys)
    assert len(shares) == data.KEYS
    assert shares[0] / shares[9] == pytest.approx(10**data.EXPONENT, rel=0.1)


def test_a_data_set_is_whole_made_once_and_has_the_asked_rows(load, tmp_path, monkeypatch):
    data = load("data")
    monkeypatch.setattr(data, "FOLDER", tmp_path / "bench")
    monkeypatch.setattr(data, "ROWS_PER_FILE", 1_000)
    folder = data.dataset("even", 2_500)
    files = sorted(folder.glob("*.parquet"))
    assert [pq.read_metadata(path).num_rows for path in files] == [1_000, 1_000, 500]
    written = files[0].stat().st_mtime_ns
    assert data.dataset("even", 2_500) == folder
    assert files[0].stat().st_mtime_ns == written
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_an_unknown_kind_is_refused(load):
    with pytest.raises(ValueError, match="kind must be one of"):
        load("data").make("odd", 1, 1, (0,))
