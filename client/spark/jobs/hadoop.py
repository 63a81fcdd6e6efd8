"""The files of a place through Hadoop's file systems, in the Java of a classic session."""

from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from lognode.client.spark.jobs.place import Files


class HadoopFiles(Files):
    """A directory on any file system that Spark can write."""

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

    def names(self, folder: str) -> list[str]:
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(path)]

    def below(self, folder: str) -> list[str]:
        path = self._path(folder)
        if not self._files.exists(path):
            return []
        root = self.location("")
        found, each = [], self._files.listFiles(path, True)
        while each.hasNext():
            location = str(each.next().getPath().toString())
            found.append(location.removeprefix(root).lstrip("/"))
        return found

    def location(self, name: str) -> str:
        return str(self._files.makeQualified(self._path(name)).toString())

    def read(self, name: str) -> bytes:
        stream = self._files.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def create(self, name: str, content: bytes) -> bool:
        hidden = self._path(f"{name.rpartition('/')[0]}/.{uuid4().hex}")
        stream = self._files.create(hidden, False)
        try:
            stream.write(bytearray(content))
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
            return False
        finally:
            self._files.delete(hidden, False)
        return True

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), True)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)
