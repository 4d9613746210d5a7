"""Files that were charged in one place are known in another: by path, by device and inode, by URL, and by the notes of 0.1.0."""

import hashlib
import json
import os
import pathlib

import pytest

from dp_pipelines.ledger import default_places
from dp_pipelines.ledger.anchor import default_anchor
from dp_pipelines.ledger.default_places import AccountPlace

ONE = AccountPlace(account="shop", ledger="1" * 32, shown="/jobs/one.sqlite")
OTHER = AccountPlace(account="shop", ledger="2" * 32, shown="/jobs/other.sqlite")
SECRET = b"eve bought tea"


@pytest.fixture
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with two files of rows."""
    (tmp_path / "data").mkdir()
    for name in ("a.csv", "b.csv"):
        (tmp_path / "data" / name).write_bytes(SECRET)
    return tmp_path / "data"


def charge(place: AccountPlace, *files: object) -> list[str]:
    names = [str(file) for file in files]
    return default_places.remember(place, names[0], names, "--ledger")


def notes() -> list[pathlib.Path]:
    return sorted(pathlib.Path(default_anchor()).glob("files-*.json"))


def test_a_file_that_another_ledger_has_charged_is_told_once(data: pathlib.Path) -> None:
    assert charge(ONE, data / "a.csv") == []
    (told,) = charge(OTHER, data / "a.csv", data / "b.csv")
    assert "charged before, in the ledger /jobs/one.sqlite, to the account 'shop'" in told
    assert told.endswith("name it with --ledger")
    assert charge(OTHER, data / "a.csv", data / "b.csv") == []
    assert charge(ONE, data / "a.csv") == []
    (told,) = charge(ONE, data / "b.csv")
    assert "/jobs/other.sqlite" in told


def test_another_account_of_one_ledger_is_another_place(data: pathlib.Path) -> None:
    charge(ONE, data / "a.csv")
    assert len(charge(AccountPlace(account="copied", ledger=ONE.ledger, shown=ONE.shown), data / "a.csv")) == 1


def by_link(file: pathlib.Path, folder: pathlib.Path) -> object:
    (folder / "link").symlink_to(file.parent)
    return folder / "link" / file.name


def by_hard_link(file: pathlib.Path, folder: pathlib.Path) -> object:
    os.link(file, folder / "hard.csv")
    return folder / "hard.csv"


def by_changed_hard_link(file: pathlib.Path, folder: pathlib.Path) -> object:
    os.link(file, folder / "hard.csv")
    (folder / "hard.csv").write_bytes(SECRET * 2)
    os.utime(folder / "hard.csv", ns=(1, 1))
    return folder / "hard.csv"


def by_moving(file: pathlib.Path, folder: pathlib.Path) -> object:
    return file.rename(folder / "moved.csv")


def by_writing_anew(file: pathlib.Path, folder: pathlib.Path) -> object:
    (folder / "new").write_bytes(SECRET * 3)
    (folder / "new").rename(file)
    return file


def by_scheme(file: pathlib.Path, folder: pathlib.Path) -> object:
    return f"file://{file}"


@pytest.mark.parametrize("way", [by_link, by_hard_link, by_changed_hard_link, by_moving, by_writing_anew, by_scheme])
def test_a_file_is_known_under_another_name(data: pathlib.Path, tmp_path: pathlib.Path, way) -> None:
    charge(ONE, data / "a.csv")
    assert len(charge(OTHER, way(data / "a.csv", tmp_path))) == 1


def test_a_copy_is_another_file(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What cannot be seen, and the docs say so."""
    charge(ONE, data / "a.csv")
    (tmp_path / "copy.csv").write_bytes((data / "a.csv").read_bytes())
    assert charge(OTHER, tmp_path / "copy.csv") == []


def test_a_new_file_with_the_number_of_one_that_is_gone_is_another_file(
    data: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give the numbers of deleted files to new ones."""
    charge(ONE, data / "a.csv")
    (noted,) = notes()
    content = json.loads(noted.read_text())
    device, inode, _ = content["files"].pop(str(data / "a.csv"))
    content["files"][str(data / "gone.csv")] = [device, inode, 1]
    noted.write_text(json.dumps(content))
    assert charge(OTHER, data / "a.csv") == []


def test_a_file_that_was_written_anew_is_known_by_its_new_number(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    charge(ONE, data / "a.csv")
    by_writing_anew(data / "a.csv", tmp_path)
    assert charge(ONE, data / "a.csv") == []
    assert len(charge(OTHER, by_moving(data / "a.csv", tmp_path))) == 1


def test_objects_are_known_by_their_urls() -> None:
    assert charge(ONE, "gs://bucket/a.parquet") == []
    assert charge(OTHER, "gs://bucket/b.parquet") == []
    assert len(charge(OTHER, "gs://bucket/a.parquet")) == 1


def test_rows_in_memory_are_known_by_their_name_alone() -> None:
    assert default_places.remember(ONE, "memory://shop", [], "ledger=") == []
    (told,) = default_places.remember(OTHER, "memory://shop", [], "ledger=")
    assert told.endswith("name it with ledger=")


def test_asking_alone_writes_nothing_down(data: pathlib.Path) -> None:
    charge(ONE, data / "a.csv")
    for _ in range(2):
        assert len(default_places.charged_before(OTHER, [str(data / "a.csv")], "--ledger")) == 1
    assert len(notes()) == 1


def test_a_note_of_version_0_1_0_is_read(data: pathlib.Path) -> None:
    pattern = str(data / "*.csv")
    name = hashlib.sha256(json.dumps(["shop", pattern]).encode()).hexdigest()[:32]
    path = pathlib.Path(default_anchor()) / f"source-{name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"ledger": ONE.ledger, "shown": ONE.shown}))
    files = [str(data / "a.csv")]
    assert default_places.remember(ONE, pattern, files, "--ledger") == []
    (note,) = notes()
    note.unlink()
    (told,) = default_places.remember(OTHER, pattern, files, "--ledger")
    assert "in the ledger /jobs/one.sqlite, to the account 'shop'" in told
    assert default_places.remember(OTHER, pattern, files, "--ledger") == []


def test_a_note_holds_names_and_numbers_of_files_and_is_for_its_user_alone(data: pathlib.Path) -> None:
    charge(ONE, data / "a.csv")
    (note,) = notes()
    found = os.stat(data / "a.csv")
    files = {str(data / "a.csv"): [found.st_dev, found.st_ino, found.st_mtime_ns]}
    assert json.loads(note.read_text()) == {**vars(ONE), "files": files}
    assert note.stat().st_mode & 0o777 == 0o600
    assert note.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"account": 1}',
        '{"account": "a", "ledger": "l", "shown": "s", "files": 7}',
        '{"account": "a", "ledger": "l", "shown": "s", "files": {"x": [1, "2", 3], "y": 5}}',
    ],
)
def test_a_damaged_note_stops_nothing(data: pathlib.Path, text: str) -> None:
    charge(ONE, data / "a.csv")
    notes()[0].write_text(text)
    assert charge(OTHER, data / "a.csv") == []
    assert charge(ONE, data / "a.csv") != []


def test_a_place_that_cannot_be_written_stops_nothing(data: pathlib.Path, own_state: pathlib.Path) -> None:
    own_state.write_text("a file")
    assert charge(ONE, data / "a.csv") == []
    assert charge(ONE, data / "none.csv") == []
