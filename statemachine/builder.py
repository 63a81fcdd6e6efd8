"""The builder process: it makes segments so that the event loop's process does not have to.

py-lmdb takes the GIL per item, and sorting a million keys takes a second; in a thread either
would stall every append (decision 5 of the design). The child is spawned by `python -m`, speaks
length-prefixed msgpack on its pipes, opens no file of the node's but the one it writes, and ends
when its standard input does, which is when the node ends, however it ends.

    request    [path, first seq, number of sources], then each source: [data, selected, timestamp]
    answer     ["ok", segment info] or ["error", text]
"""

import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgpack

from ..client.errors import Unavailable
from .segment_writer import SegmentInfo, Source, build

_LENGTH: Final = struct.Struct(">I")


class Builder:
    """The parent's side. `build` blocks: call it from a thread, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def build(self, path: Path, first_seq: int, sources: Sequence[Source]) -> SegmentInfo:
        """A synced segment file at `path`.

        Raises Unavailable, with the cause and no file left; the same call may be tried again.
        """
        process = self._running()
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise Unavailable("the builder process has no pipes")
        try:
            _send(stdin, [str(path), first_seq, len(sources)])
            for source in sources:
                _send(stdin, source)
            stdin.flush()
            answer = _receive(stdout)
        except (OSError, EOFError) as error:
            self.stop()
            path.unlink(missing_ok=True)
            raise Unavailable(f"the builder process ended: {error or 'no answer'}") from None
        if answer[0] != "ok":
            raise Unavailable(f"the segment could not be built: {answer[1]}")
        return SegmentInfo(*answer[1])

    def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                _close_quietly(pipe)

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is the node's to handle
            )
        return self._process


def serve(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    """The child's side: build what is asked until standard input ends."""
    while True:
        try:
            path, first_seq, count = _receive(stdin)
        except EOFError:
            return
        sources = list(_sources(stdin, count))
        try:
            info = build(Path(path), first_seq, sources)
        except Exception as error:  # the parent decides what to do about it
            Path(path).unlink(missing_ok=True)
            _send(stdout, ["error", f"{type(error).__name__}: {error}"])
        else:
            _send(stdout, ["ok", info])
        stdout.flush()


def _sources(stdin: IO[bytes], count: int) -> Iterator[Source]:
    for _ in range(count):
        yield Source(*_receive(stdin))


def _send(pipe: IO[bytes], message: Any) -> None:
    packed: bytes = msgpack.packb(message)
    pipe.write(_LENGTH.pack(len(packed)))
    pipe.write(packed)


def _receive(pipe: IO[bytes]) -> Any:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    body = pipe.read(length)
    if len(body) < length:
        raise EOFError
    return msgpack.unpackb(body, strict_map_key=False)


def _close_quietly(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:  # unflushed bytes for a process that is gone
        return


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
