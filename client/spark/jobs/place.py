"""Small files beside the data, through Hadoop's file systems: any path that Spark can write
works."""

import re
from typing import Any, Final
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lognode.client.protocol.errors import Conflict

_TEXT: Final = "utf-8"


class Place:
    """A directory; names in it are relative to it."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self.root = root.rstrip("/") or "/"
        configuration = spark.sparkContext._jsc.hadoopConfiguration()
        path = jvm.org.apache.hadoop.fs.Path(self.root)
        self._files: Any = path.getFileSystem(configuration)
        self._context: Any = jvm.org.apache.hadoop.fs.FileContext.getFileContext(
            path.getFileSystem(configuration).getUri(), configuration
        )

    def path(self, name: str) -> str:
        """Return the path for Spark."""
        return f"{self.root}/{name}"

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, in order; an empty list when there is no folder."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._files.listStatus(path))

    def files(self, folder: str, suffix: str) -> list[str]:
        """Return the names of the files below a folder that end with the suffix, in order; an empty
        list when there is no folder."""
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        root = self._location("")
        found, each = [], self._files.listFiles(path, True)
        while each.hasNext():
            location = str(each.next().getPath().toString())
            if location.endswith(suffix):
                found.append(location.removeprefix(root).lstrip("/"))
        return sorted(found)

    def location(self, name: str) -> str:
        """Return the location of a file for other programs."""
        # Java writes file:/x; other programs read only file:///x.
        return re.sub(r"^file:/(?!/)", "file:///", self._location(name))

    def read(self, name: str) -> str:
        """Return the text of a file."""
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes()).decode(_TEXT)
        finally:
            stream.close()

    def create(self, name: str, text: str) -> None:
        """Create a file with this name and text, atomically.

        Raises Conflict when the file exists, and leaves it unchanged.
        """
        hidden = self._path(f"{name.rpartition('/')[0]}/.{uuid4().hex}")
        stream = self._files.create(hidden, False)
        try:
            stream.write(bytearray(text.encode(_TEXT)))
            stream.hsync()
        finally:
            stream.close()
        options = self._jvm.java.lang.Class.forName("org.apache.hadoop.fs.Options$Rename")
        none = self._jvm.java.lang.reflect.Array.newInstance(options, 0)
        try:
            self._context.rename(hidden, self._path(name), none)
        except Py4JJavaError as error:
            if "FileAlreadyExists" not in str(error.java_exception):
                raise
            raise Conflict(
                f"{self.path(name)} exists already: another job wrote the file"
            ) from None
        finally:
            self._files.delete(hidden, False)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content, if it exists."""
        self._files.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.path(name))

    def _location(self, name: str) -> str:
        path = self._path(name) if name else self._jvm.org.apache.hadoop.fs.Path(self.root)
        return str(self._files.makeQualified(path).toString())
