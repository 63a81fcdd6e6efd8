"""The files of a place that this process shares with a server of Spark Connect: a directory.

Hadoop keeps a checksum of each file beside the file, as `.NAME.crc`. Such files are of no place:
they are not listed, and leave with their file, since Hadoop would refuse another file of the name.
"""

import os
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from lognode.client.objects.directory import DirectoryStore
from lognode.client.protocol.errors import InvalidArgument
from lognode.client.spark.jobs.place import Files

_LOCAL: Final = ("", "localhost")


class SharedFiles(Files):
    """A directory, given as a path or as a URI `file:///...`."""

    def __init__(self, root: str) -> None:
        """Raises InvalidArgument for a URI of another kind."""
        path = root
        if root.startswith("file:"):
            given = urlsplit(root)
            path = unquote(given.path) if given.netloc in _LOCAL else ""
        if not path or "://" in path:
            raise InvalidArgument(
                f"{root} is not a directory of this machine. With Spark Connect give a directory "
                "that the Spark server and this machine share; or run the job with --master",
                what="out",
            )
        self._directory = Path(os.path.abspath(path))
        self._store = DirectoryStore(self._directory)
        # A path alone would be one of the server's own default file system.
        self.root = self.location("").rstrip("/")

    def names(self, folder: str) -> list[str]:
        path = self._directory / folder
        if not path.is_dir():
            return []
        return [each.name for each in os.scandir(path) if not _is_checksum(each.name)]

    def below(self, folder: str) -> list[str]:
        return [
            str(Path(where, name).relative_to(self._directory))
            for where, _, names in os.walk(self._directory / folder)
            for name in names if not _is_checksum(name)
        ]  # fmt: skip

    def location(self, name: str) -> str:
        return f"file://{self._directory / name}"

    def read(self, name: str) -> bytes:
        return (self._directory / name).read_bytes()

    def create(self, name: str, content: bytes) -> bool:
        return self._store.put(name, content)

    def remove(self, name: str) -> None:
        path = self._directory / name
        if path.is_dir():
            shutil.rmtree(path)
            return
        path.unlink(missing_ok=True)
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def _is_checksum(name: str) -> bool:
    return name.startswith(".") and name.endswith(".crc")
