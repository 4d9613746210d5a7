"""Whose files these are: patterns, links and parameters."""

import fnmatch
import pathlib
import re
import warnings

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dp_pipelines.ledger import sources


@pytest.mark.parametrize(
    ("pattern", "file", "belongs"),
    [
        ("/data/*.parquet", "/data/a.parquet", True),
        ("/data/*.parquet", "/data/deep/a.parquet", False),
        ("/data/**/*.parquet", "/data/a.parquet", True),
        ("/data/**/*.parquet", "/data/x/y/a.parquet", True),
        ("/data/{week}/a.parquet", "/data/2026-W01/a.parquet", True),
        ("/data/{week}/a.parquet", "/data/x/y/a.parquet", False),
        ("/data/part-?.csv", "/data/part-1.csv", True),
        ("/data/part-?.csv", "/data/part-12.csv", False),
        ("/data/part-[0-9].csv", "/data/part-7.csv", True),
        ("/data/part-[!0-9].csv", "/data/part-7.csv", False),
        ("/data/part-[!0-9].csv", "/data/part-x.csv", True),
        ("/data/part-[^0].csv", "/data/part-^.csv", True),
        ("/data/a.csv", "/data/a.csv", True),
        ("/data/a.csv", "/data/abcsv", False),
        ("/data/a.csv", "/data/b/../a.csv", True),
        ("/data/a.csv", "file:///data/a.csv", True),
        ("gs://bucket/*.parquet", "gs://bucket/a.parquet", True),
        ("gs://bucket/*.parquet", "gs://other/a.parquet", False),
    ],
)
def test_a_file_belongs_to_a_pattern_or_not(pattern: str, file: str, belongs: bool) -> None:
    assert sources.first_match(pattern, [file]) == (file if belongs else None)


def test_the_first_file_that_belongs_is_given() -> None:
    assert sources.first_match("/d/*.csv", ["/d/a.txt", "/d/b.csv", "/d/c.csv"]) == "/d/b.csv"
    assert sources.first_match("/d/*.csv", []) is None


def test_patterns_become_absolute_and_follow_links(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "a.parquet").touch()
    assert sources.absolute("real/*.parquet", str(tmp_path)) == f"{tmp_path}/real/*.parquet"
    assert sources.absolute("./x/../link//*.parquet", str(tmp_path)) == f"{tmp_path}/real/*.parquet"
    assert sources.absolute("link/a.parquet", str(tmp_path)) == f"{tmp_path}/real/a.parquet"
    assert sources.absolute("link/{week}-*.parquet", str(tmp_path)) == f"{tmp_path}/real/{{week}}-*.parquet"
    assert sources.absolute(f"file://{tmp_path}/link/*.csv", "/") == f"{tmp_path}/real/*.csv"


def test_a_pattern_of_the_folder_where_the_command_runs_is_one_of_this_folder(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    monkeypatch.chdir(tmp_path / "jobs")
    for folder in ("", ".", str(tmp_path / "jobs")):
        assert sources.absolute("r*.parquet", folder) == f"{tmp_path}/jobs/r*.parquet"
        assert sources.absolute("{week}.parquet", folder) == f"{tmp_path}/jobs/{{week}}.parquet"
        assert sources.absolute("../*.parquet", folder) == f"{tmp_path}/*.parquet"


def test_a_file_under_another_name_is_the_same_file(tmp_path: pathlib.Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.csv").touch()
    (tmp_path / "b.csv").symlink_to(tmp_path / "real" / "a.csv")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("b.csv", "link/a.csv", "real/../link/a.csv"):
        assert sources.first_match(f"{tmp_path}/real/*.csv", [str(tmp_path / name)])
    assert sources.first_match(f"{tmp_path}/l*/a.csv", [str(tmp_path / "link" / "a.csv")])


@given(st.text(alphabet="ab[]!^-*?{}\\/.#\n", max_size=12), st.text(alphabet="ab/.-^\n", max_size=8))
def test_any_pattern_is_a_pattern(pattern: str, file: str) -> None:
    sources.first_match(f"/{pattern}", [f"/{file}"])


@given(
    st.text(alphabet=r"[]!^-&|~?*\ab09.#", min_size=1, max_size=12),
    st.text(alphabet=r"[]!^-&|~?*\ab09#", min_size=1, max_size=4),
)
@example("[?--]", "?")
@example("[[a]", "[")
@example("[a&&b]", "&")
@example("[]a]", "]")
@example("[!]]", "]")
@example("[!]", "x")
@example("[b-a]", "b")
@example("[!b-a]", "x")
def test_a_pattern_stands_for_the_files_that_glob_finds_and_never_warns(pattern: str, name: str) -> None:
    """Signs that a regular expression, or a later one, takes for operations of sets are nothing but signs."""
    re.purge()  # a pattern that is known already would warn no more
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sources.first_match(f"/none/{pattern}", [f"/none/{name}"])
    assert (found is not None) == fnmatch.fnmatchcase(name, pattern)


@given(st.text(alphabet="ab-^.+()|$ \n", min_size=1, max_size=12).filter(lambda t: t not in (".", "..")))
def test_text_without_signs_stands_for_itself(text: str) -> None:
    assert sources.first_match(f"/none/{text}", [f"/none/{text}"])
    assert not sources.first_match(f"/none/{text}", [f"/none/{text}x"])
    assert re.escape(text)
