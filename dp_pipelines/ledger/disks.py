"""File systems of paths, since SQLite's locks only work on local disks, and locks on folders.

In: a path. Out: an error if the path is on a network file system; one process at a time. Not covered: systems other
than Linux, where the kinds of mounts are unknown; a local disk that another machine mounts too; 9p, which is both the
disk of some sandboxes and a share of some virtual machines.
"""

import contextlib
import fcntl
import os
import pathlib
import re
from collections.abc import Iterator

from dp_pipelines.errors import RequestError

MOUNTS = pathlib.Path("/proc/self/mounts")
"""The file in which Linux lists mounts. Tests replace it."""

NETWORK = re.compile(
    r"nfs4?|cifs|smb[23]?|smbfs|ncpfs|afs|coda|ceph|glusterfs|lustre|gpfs|beegfs|panfs|orangefs|pvfs2|ocfs2|gfs2|wekafs|davfs"
    r"|fuse\.(sshfs|glusterfs|gcsfuse|s3fs|goofys|rclone|cephfs|ceph|ceph-fuse|juicefs|blobfuse2?|mount-s3|mountpoint-s3|davfs2)"
)


def kind_of(path: pathlib.Path) -> str:
    """Return the kind of file system that holds a path, or would hold it; empty if unknown."""
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    where = path
    while not where.exists() and where != where.parent:
        where = where.parent
    place = str(where.resolve())
    best, kind = "", ""
    for line in lines:
        fields = line.split(" ")
        if len(fields) > 2:
            mount = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[1])
            inside = place == mount or place.startswith(mount.rstrip("/") + "/")
            # A later mount hides an earlier one at the same place.
            if inside and len(mount) >= len(best):
                best, kind = mount, fields[2]
    return kind


def refuse_network(path: pathlib.Path) -> None:
    """Refuse a SQLite file on a network file system.

    Raises:
        RequestError: the path is on one.
    """
    kind = kind_of(path)
    if NETWORK.fullmatch(kind):
        raise RequestError(
            field=f"ledger {str(path)!r}",
            message=f"is on a network file system ({kind}), where SQLite cannot protect a ledger from two writers",
            hint="use a local disk, or PostgreSQL with --ledger postgresql://...",
        )


def is_read_only(path: pathlib.Path) -> bool:
    """Return True if the disk that holds a path, or would hold it, is mounted read-only."""
    where = path
    while not where.exists() and where != where.parent:
        where = where.parent
    try:
        return bool(os.statvfs(where).f_flag & os.ST_RDONLY)
    except OSError:
        return False


@contextlib.contextmanager
def alone(folder: pathlib.Path) -> Iterator[None]:
    """Let one process at a time work in an existing folder, if its file system supports locks."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
