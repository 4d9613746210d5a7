"""An object store in this process, as one more file system of Beam: `bucket://NAME/OBJECT`.

In: nothing. Out: the class, whose registration is its definition. Holds: as in real stores an object is there once its writer is
closed, and there are no folders. Not covered: workers in other processes, credentials, failures of a network. Tests only.
"""

import io

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem


class Buckets(FileSystem):
    """Objects by URL."""

    held: dict[str, bytes] = {}  # noqa: RUF012 - one store for all instances: Beam makes them as it likes
    deleted: list[str] = []  # noqa: RUF012

    @classmethod
    def scheme(cls):
        return "bucket"

    def join(self, basepath, *paths):
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path):
        folder, _, name = path.rpartition("/")
        return folder, name

    def mkdirs(self, path):
        pass

    def has_dirs(self):
        return False

    def _list(self, dir_or_prefix):
        for url, content in sorted(self.held.items()):
            if url.startswith(dir_or_prefix):
                yield FileMetadata(url, len(content))

    def create(self, path, mime_type="application/octet-stream", compression_type="auto"):
        return _Writer(path)

    def open(self, path, mime_type="application/octet-stream", compression_type="auto"):
        if path not in self.held:
            raise BeamIOError("no object", {path: "missing"})
        return io.BytesIO(self.held[path])

    def copy(self, source_file_names, destination_file_names):
        raise NotImplementedError

    def rename(self, source_file_names, destination_file_names):
        raise NotImplementedError

    def exists(self, path):
        return path in self.held

    def size(self, path):
        return len(self.held[path])

    def last_updated(self, path):
        raise NotImplementedError

    def checksum(self, path):
        raise NotImplementedError

    def metadata(self, path):
        return FileMetadata(path, self.size(path))

    def delete(self, paths):
        for path in paths:
            del self.held[path]
            self.deleted.append(path)


class _Writer(io.BytesIO):
    def __init__(self, path):
        super().__init__()
        self._path = path

    def close(self):
        if not self.closed:
            Buckets.held[self._path] = self.getvalue()
        super().close()
