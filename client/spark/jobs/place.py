"""Small files beside the data.

The files of a classic session go through Hadoop: any path that Spark can write works. A session of
Spark Connect has no Java here, so this process reads and writes the files itself: it must share
the directory with the Spark server.
"""

import re
from abc import ABC, abstractmethod
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lognode.client.protocol.errors import Conflict, InvalidArgument
from lognode.client.spark.jobs import remote


class Files(ABC):
    """The files below a directory. Names are relative to the directory; "" is the directory."""

    root: str
    """The directory, as Spark takes it."""

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in any order; an empty list when there is no folder."""

    @abstractmethod
    def below(self, folder: str) -> list[str]:
        """Return the names of the files below a folder, in any order; an empty list when there is
        no folder."""

    @abstractmethod
    def location(self, name: str) -> str:
        """Return the location of a file as a URI without escapes."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file."""

    @abstractmethod
    def create(self, name: str, content: bytes) -> bool:
        """Create a file durably, which appears whole or not at all. Return False when a file of
        this name exists, which stays as it is."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""


class Place:
    """A directory; names in it are relative to it.

    Raises InvalidArgument for a directory that a session of Spark Connect cannot share.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._files: Files
        self._unchecked: SparkSession | None = None
        if remote.is_remote(spark):
            from lognode.client.spark.jobs.shared import SharedFiles

            self._files = SharedFiles(root)
            self._unchecked = spark
        else:
            from lognode.client.spark.jobs.hadoop import HadoopFiles

            self._files = HadoopFiles(spark, root)
        self.root = self._files.root

    def check(self) -> None:
        """Raise InvalidArgument unless Spark sees what this process writes into the directory."""
        spark, self._unchecked = self._unchecked, None
        if spark is None:
            return
        name, text = f"seen-{uuid4().hex}", uuid4().hex
        self._files.create(name, text.encode())
        try:
            seen = [row.value for row in spark.read.text(self.path(name)).collect()] == [text]
        except AnalysisException:
            seen = False
        finally:
            self._files.remove(name)
        if not seen:
            raise InvalidArgument(
                f"the Spark server does not see the files of this machine in {self.root}. With "
                "Spark Connect give a directory that the server and this machine share",
                what="out",
            )

    def path(self, name: str) -> str:
        """Return the path for Spark."""
        return f"{self.root}/{name}"

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; an empty list when there is no folder."""
        return sorted(self._files.names(folder))

    def files(self, folder: str, suffix: str) -> list[str]:
        """Return the names of the files below a folder that end with the suffix, in order; an empty
        list when there is no folder."""
        return sorted(name for name in self._files.below(folder) if name.endswith(suffix))

    def location(self, name: str) -> str:
        """Return the location of a file for other programs."""
        # Java writes file:/x; other programs read only file:///x.
        return re.sub(r"^file:/(?!/)", "file:///", self._files.location(name))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        return self._files.read(name).decode()

    def create(self, name: str, text: str) -> None:
        """Create a file with this name and text, atomically.

        Raises Conflict when the file exists, and leaves it unchanged.
        """
        if not self._files.create(name, text.encode()):
            raise Conflict(f"{self.path(name)} exists already: another job wrote the file")

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        self._files.remove(name)
