"""Who may read a release: whoever may read what else is made here, by umask and folder."""

import os
import pathlib
import stat

import pytest

from dp_pipelines.release import staging


def mode(path: pathlib.Path) -> int:
    """The permissions of a file or folder."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize(
    ("umask", "folder", "file"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600), (0o002, 0o775, 0o664)]
)
def test_a_release_has_the_permissions_of_new_files(tmp_path: pathlib.Path, umask: int, folder: int, file: int) -> None:
    before = os.umask(umask)
    try:
        with staging.staging_folder(tmp_path / "out") as staged:
            (staged / "a.parquet").write_bytes(b"x")
            (staged / "b.json").write_bytes(b"x")
            (staged / "b.json").chmod(0o600)
            assert mode(staged) == 0o700
            staging.publish_folder(staged, tmp_path / "out")
    finally:
        os.umask(before)
    assert mode(tmp_path / "out") == folder
    assert {path.name: mode(path) for path in (tmp_path / "out").iterdir()} == {"a.parquet": file, "b.json": file}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
