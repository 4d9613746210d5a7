"""Small disks that can be filled and made read-only, mounted for a test.

In: nothing. Out: the fixtures `small_disk`, which is in memory, and `real_disk`, which is not. Holds: what is mounted is
unmounted at the end; where mounting is not allowed the test is skipped, and says so.
"""

import contextlib
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

BALLAST = ".ballast"


class SmallDisk:
    """A mounted disk.

    Args:
        path: its folder.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def fill(self, leave: int = 0) -> None:
        """Fill it up, but for some bytes."""
        with contextlib.suppress(OSError), (self.path / BALLAST).open("ab", buffering=0) as file:
            while file.write(bytes(2**16)):
                pass
        if leave:
            with (self.path / BALLAST).open("rb+") as file:
                file.truncate(max(0, file.seek(0, 2) - leave))

    def free(self) -> None:
        """Free what `fill` has taken."""
        (self.path / BALLAST).unlink(missing_ok=True)

    def read_only(self) -> None:
        """Let nobody write; no file may be open for writing."""
        subprocess.run(["mount", "-o", "remount,ro", str(self.path)], check=True, capture_output=True)

    def writable(self) -> None:
        """Let everybody write again."""
        subprocess.run(["mount", "-o", "remount,rw", str(self.path)], check=True, capture_output=True)

    def names(self) -> list[str]:
        """What stands on it, private folders too."""
        return sorted(path.name for path in self.path.iterdir() if path.name not in (BALLAST, "lost+found"))


@contextlib.contextmanager
def mounted(path: pathlib.Path, size: str = "8m") -> Iterator[SmallDisk]:
    """A disk at a new folder, until the end of the block."""
    with _mounted(path, "-t", "tmpfs", "-o", f"size={size}", "tmpfs") as disk:
        yield disk


@contextlib.contextmanager
def _mounted(path: pathlib.Path, *options: str) -> Iterator[SmallDisk]:
    """Whatever `mount` mounts with some options."""
    path.mkdir()
    mount = ["mount", *options, str(path)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path: pathlib.Path) -> Iterator[SmallDisk]:
    """A disk of 8 MiB."""
    with mounted(tmp_path / "disk") as disk:
        yield disk


@pytest.fixture
def real_disk(tmp_path: pathlib.Path) -> Iterator[SmallDisk]:
    """A disk of 192 MiB whose file system is none in memory."""
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(192 * 2**20)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("needs mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
    with _mounted(tmp_path / "disk", "-o", "loop", str(image)) as disk:
        yield disk
