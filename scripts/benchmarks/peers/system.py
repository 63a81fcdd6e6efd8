"""The interface of every measured system: a name, settings, a way to start it, a client."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lognode.client.bench.shape import Shape

from .own_tool import OwnTool

Record = tuple[bytes, bytes]
_SCRIPTS = Path(__file__).resolve().parents[2]
_START_S = 60.0
_END_S = 20.0


class Members(NamedTuple):
    """Started members: the addresses for clients, and the ids of their processes."""

    addresses: list[str]
    pids: list[int]


class Expired(Exception):
    """The system has removed the record, as its settings demand."""


class Client(ABC):
    """Appends for the load: `append` returns when the records are acknowledged."""

    @abstractmethod
    async def open(self, addresses: Sequence[str], shape: Shape) -> None:
        """Connect; create the target of appends, for keys of the shape."""

    @abstractmethod
    async def append(self, records: Sequence[Record]) -> Any:
        """Append all records; return what finds the first of them again."""

    @abstractmethod
    async def read(self, record: Record, found_by: Any) -> bytes | None:
        """Return the value of a record, by what `append` returned.

        Raises Expired for a record that the system had to remove.
        """

    @abstractmethod
    async def close(self) -> None:
        """Disconnect."""


class System(ABC):
    """A system with one configuration.

    `batch` records go in a call, `window` calls are in flight in the throughput run.
    """

    name: ClassVar[str]
    durability: str
    """When an append is acknowledged."""
    batch: int = 1
    window: int = 64
    has_own_tool: ClassVar[bool] = False
    limits: str = ""
    """What readers of the figures have to know."""

    @abstractmethod
    def missing(self, cache: Path) -> str | None:
        """Return why the system cannot run here, or None when it can."""

    @abstractmethod
    def version(self, cache: Path) -> str:
        """Return the version that the system reports."""

    @abstractmethod
    def settings(self) -> str:
        """The configuration that matters, in the system's own words."""

    @abstractmethod
    def start(self, directory: Path, cache: Path) -> contextlib.AbstractContextManager[Members]:
        """Start three members with their data in the directory."""

    @abstractmethod
    def client(self) -> Client:
        """Return a client for the process of the load."""

    async def own_tool(self, addresses: Sequence[str], cache: Path, shape: Shape) -> OwnTool | None:
        """Return the system's own load generator, ready for appends of this shape; None without
        such a tool."""
        return None


@contextlib.contextmanager
def processes(
    commands: Sequence[Sequence[str]], directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run the commands; end them by their ids with the block. Output goes to files beside."""
    started: list[subprocess.Popen[bytes]] = []
    with contextlib.ExitStack() as files:
        try:
            for number, command in enumerate(commands):
                output = files.enter_context(open(directory / f"{number}.out", "wb"))
                started.append(
                    subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                        env={**os.environ, **(environment or {})}, cwd=directory,
                    )
                )  # fmt: skip
            yield started
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + _END_S
            for process in started:
                try:
                    process.wait(max(0.1, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def wait_listening(ports: Sequence[int], started: Sequence[subprocess.Popen[bytes]]) -> None:
    """Return when all ports answer. Raises RuntimeError when a program ended before."""
    deadline = time.monotonic() + _START_S
    for port in ports:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError as error:
                if any(process.poll() is not None for process in started):
                    raise RuntimeError("the program ended at once; see its output") from error
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


@contextlib.contextmanager
def scratch(data: Path) -> Iterator[Path]:
    """Yield a directory that is removed afterwards, with all files of the programs."""
    directory = Path(tempfile.mkdtemp(dir=data, prefix="bench-")).resolve()
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def with_modules() -> dict[str, str]:
    """Return an environment in which Python finds the modules of these benchmarks."""
    paths = (str(_SCRIPTS), os.environ.get("PYTHONPATH"))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def said(*command: str) -> str:
    """Return the first line that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout.strip() or done.stderr.strip()).split("\n")[0]
