"""The builder process, which makes segments outside the event loop's process.

py-lmdb takes the GIL per item, and sorting a million keys takes a second; in a thread either would
stall every append (decision 5). The child is spawned by `python -m` and speaks length-prefixed
msgpack on its pipes. It opens no file of the node except the one it writes. It ends when its
standard input ends, which is when the node ends for any reason. It gives way to the node
(`background`).

    request    [path, first seq, number of sources, whether the process gives way, value gain],
               then the sources, some at a time in an array:
               [data, selected, timestamp, seqs] each; large data follow the array, which has
               their sizes
    answer     ["ok", segment info] or ["error", text]
"""

import os
import select
import struct
import subprocess
import sys
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import IO, Any, Final

import msgpack

from ..client.protocol import limits
from ..client.protocol.errors import Unavailable
from . import background
from .segment_format import SegmentInfo
from .sources import Source

_LENGTH: Final = struct.Struct(">I")
_PORTION_SOURCES: Final = 500
_PORTION_BYTES: Final = 512 * limits.KIB
_APART_BYTES: Final = 16 * limits.KIB
"""Data from this size on follow their array. To pack the data would copy them on both sides."""
_DOUBLINGS_MAX: Final = 4


class Builder:
    """The parent's side. `build` blocks: call it from a thread, one at a time.

    The parent kills a process that hangs: a process that takes no input for `patience_s`, or has no
    answer after that and the time for its input. The next process gets twice the time, up to 16
    times: a process that is only slow must finish some day.
    """

    def __init__(self, *, patience_s: float = limits.builder_patience_s) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._patience_s = patience_s
        self._hung = 0
        """The number of consecutive builds that hung."""
        self.is_ready = False
        """Whether the process has answered since its start."""

    def build(
        self, path: Path, first_seq: int, sources: Sequence[Source], *, gives_way: bool = True,
        value_gain: int = limits.value_gain,
    ) -> SegmentInfo:  # fmt: skip
        """Build a synced segment file at `path`, in a process that may give way to the node.

        `value_gain` is that of the range's rules.
        Raises Unavailable, with the cause and no file left; the caller may repeat the call.
        """
        process = self._running()
        stdin, stdout = process.stdin, process.stdout
        if stdin is None or stdout is None:
            raise Unavailable("the builder process has no pipes")
        factor = 1 << min(self._hung, _DOUBLINGS_MAX)
        patience_s = factor * self._patience_s
        given = 0
        try:
            os.set_blocking(stdin.fileno(), False)  # else a large write waits without a bound
            head = [str(path), first_seq, len(sources), gives_way, value_gain]
            _give(stdin, head, patience_s)
            for some in _portions(sources):
                given += _give(stdin, _without_large(some), patience_s, _large(some))
            _wait(stdout, select.POLLIN, patience_s + factor * given / limits.builder_bytes_per_s)
            answer = _receive(stdout)
        except (OSError, EOFError, ValueError) as error:  # ValueError: `stop` has closed a pipe
            self._hung += isinstance(error, TimeoutError)
            self.stop()
            path.unlink(missing_ok=True)
            raise Unavailable(f"the builder process ended: {error or 'no answer'}") from None
        self._hung = 0
        self.is_ready = True
        if answer[0] != "ok":
            raise Unavailable(f"building the segment failed: {answer[1]}")
        return SegmentInfo(*answer[1])

    def stop(self) -> None:
        """End the process, if there is one."""
        self.is_ready = False
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                _close_quietly(pipe)

    def _running(self) -> "subprocess.Popen[bytes]":
        process = self._process
        if process is None or process.poll() is not None:
            self.stop()
            process = self._process = background.spawn(__name__, gives_way=False)
        return process


def serve(stdin: IO[bytes], stdout: IO[bytes]) -> None:
    """The child's side: build the requested segments until standard input ends."""
    from .segment_writer import build  # with numpy, which the node's process does not need

    calm = background.CalmThread()
    while True:
        try:
            path, first_seq, count, gives_way, value_gain = _receive(stdin)
        except EOFError:
            return
        sources: list[Source] = []
        while len(sources) < count:
            sources += _received_sources(stdin)
        try:
            work = partial(build, Path(path), first_seq, sources, value_gain=value_gain)
            info = calm.run(work, gives_way=gives_way)
        except Exception as error:  # the parent decides how to react
            Path(path).unlink(missing_ok=True)
            _send(stdout, ["error", f"{type(error).__name__}: {error}"])
        else:
            _send(stdout, ["ok", info])
        stdout.flush()


def _portions(sources: Sequence[Source]) -> Iterator[list[Source]]:
    """Yield all sources in portions.

    Packing hundreds of thousands of small sources one by one would keep the GIL from the event
    loop, and so would packing many large sources at once.
    """
    at = 0
    while at < len(sources):
        some = list(sources[at : at + _PORTION_SOURCES])
        sizes = list(accumulate(len(source.data) for source in some))
        count = max(1, bisect_right(sizes, _PORTION_BYTES))
        yield some[:count]
        at += count


def _large(sources: Sequence[Source]) -> list[bytes]:
    """Return the large data of these sources."""
    return [source.data for source in sources if len(source.data) >= _APART_BYTES]


def _without_large(sources: Sequence[Source]) -> list[Any]:
    """Return the sources with sizes instead of large data."""
    return [
        source if len(source.data) < _APART_BYTES else (len(source.data), *source[1:])
        for source in sources
    ]


def _received_sources(pipe: IO[bytes]) -> list[Source]:
    """Read a portion of sources. Raises EOFError."""
    return [
        Source(data if type(data) is bytes else _read(pipe, data), *others)
        for data, *others in _receive(pipe)
    ]


def _give(pipe: IO[bytes], message: Any, patience_s: float, following: Sequence[bytes] = ()) -> int:
    """Write a message and the bytes that follow to a non-blocking pipe. Return how many bytes.

    Raises OSError, and TimeoutError when the reader takes nothing for `patience_s`.
    """
    packed: bytes = msgpack.packb(message)
    parts = (_LENGTH.pack(len(packed)), packed, *following)
    left = deque(memoryview(part) for part in parts)
    size = sum(map(len, left))
    while left:
        _wait(pipe, select.POLLOUT, patience_s)
        written = os.writev(pipe.fileno(), left)
        while left and written >= len(left[0]):
            written -= len(left.popleft())
        if left:
            left[0] = left[0][written:]
    return size


def _wait(pipe: IO[bytes], event: int, seconds: float) -> None:
    """Return when the pipe is ready, or has ended. Raises TimeoutError."""
    poll = select.poll()  # takes any descriptor; `select` ends at 1023
    poll.register(pipe, event)
    if not poll.poll(1000 * seconds):
        raise TimeoutError(f"the builder made no progress for {seconds:.4g} s, and was killed")


def _send(pipe: IO[bytes], message: Any) -> None:
    packed: bytes = msgpack.packb(message)
    pipe.write(_LENGTH.pack(len(packed)))
    pipe.write(packed)


def _receive(pipe: IO[bytes]) -> Any:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    return msgpack.unpackb(_read(pipe, length), strict_map_key=False)


def _read(pipe: IO[bytes], length: int) -> bytes:
    """Read so many bytes. Raises EOFError."""
    found = pipe.read(length)
    if len(found) < length:
        raise EOFError
    return found


def _close_quietly(pipe: IO[bytes]) -> None:
    try:
        pipe.close()
    except OSError:  # unflushed bytes for a process that is gone
        return


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
