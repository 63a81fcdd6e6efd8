"""Replaces the machine while a run lasts: clocks, entropy, sockets, limits, free space, parts.

The product reads time as any program does, by `time.monotonic()` and its like. Passing a clock to
each of a hundred readers would change the product for the simulator only, and would not reach the
libraries. So this module, and no other, replaces functions of the standard library. Some code of
the product binds such a function at import, as a default argument or an attribute of a class:
`_bound` finds these places by what they hold.

Within a turn the loop's time stands still. The clocks that measure work creep by a microsecond at
each reading instead, so that code which works until some time has passed ends its turn.
"""

import contextlib
import os
import random
import resource
import socket
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...client.accepting.handshake_turns import wanted_s
from ...node.tier import keeping, local_file, node_tier, tier_files
from ...node.tier.chunk_cache import ChunkCache
from .loop import SimLoop
from .network import server_of
from .process import OWNER
from .store_threads import Turned

EPOCH_MS: Final = 1_750_000_000_000
"""What wall clocks show at the start of a run."""
_CREEP_NS: Final = 1_000
_listdir: Final = os.listdir
_preadv: Final = os.preadv
_DISK_BYTES: Final = 1 << 40
_PART_BYTES: Final = 48 << 10
_CHUNK_BYTES: Final = _PART_BYTES // 3
_KEEPING_REST_S: Final = 1.0
_BLOCK_BYTES: Final = 4096
_FOLDERS: Final = ("lognode.client", "lognode.node", "lognode.raft", "lognode.statemachine",
                   "lognode.partitions")  # fmt: skip

_FUNCTIONS: Final = (types.BuiltinFunctionType, types.FunctionType)
_DESCRIPTORS: Final = 4096
"""The limit of open files and connections of each process."""

Replaced = dict[Callable[..., Any], Callable[..., Any]]


class _Machine:
    """The functions that replace those of the machine."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._crept_ns = 0

    def monotonic(self) -> float:
        return self._loop.time()

    def monotonic_ns(self) -> int:
        return int(self._loop.time() * 1e9)

    def perf_counter(self) -> float:
        self._crept_ns += _CREEP_NS
        return self._loop.time() + self._crept_ns * 1e-9

    def perf_counter_ns(self) -> int:
        return int(self.perf_counter() * 1e9)

    def thread_time(self) -> float:
        self._crept_ns += _CREEP_NS
        return self._crept_ns * 1e-9

    def time_ns(self) -> int:
        process = OWNER.get(None)
        ahead_ms = 0 if process is None else self._loop.network.ahead_ms.get(process.place, 0)
        return (EPOCH_MS + ahead_ms) * 1_000_000 + int(self._loop.time() * 1e9)

    def time(self) -> float:
        return self.time_ns() * 1e-9

    def sleep(self, seconds: float) -> None:
        """Return at once: only threads and child processes sleep, and they take no time here."""

    def entropy(self, count: int) -> bytes:
        return self._loop.rng.randbytes(count)

    def limit(self, what: int) -> tuple[int, int]:
        return _DESCRIPTORS, _DESCRIPTORS

    def listed(self, path: Any = ".") -> list[str]:
        """Return the names in an order of their own; hide the descriptors of this process."""
        if str(path).startswith("/proc/"):
            raise FileNotFoundError(path)
        return sorted(_listdir(path))

    def read(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        """Read as if the kernel had all files in memory: whether it has is not part of a seed."""
        return _preadv(fd, buffers, offset)

    def free(self, path: Any) -> Any:
        process = OWNER.get(None)
        place = "" if process is None else process.place
        left = self._loop.network.free_bytes.get(place, _DISK_BYTES) // _BLOCK_BYTES
        blocks = _DISK_BYTES // _BLOCK_BYTES
        return types.SimpleNamespace(
            f_bavail=left, f_bfree=left, f_blocks=blocks, f_frsize=_BLOCK_BYTES,
            f_bsize=_BLOCK_BYTES,
        )  # fmt: skip


@contextlib.contextmanager
def replaced_machine(loop: SimLoop) -> Iterator[None]:
    """Give all code of this process the time, entropy and sockets of the loop."""
    machine = _Machine(loop)
    ours: Replaced = {
        time.monotonic: machine.monotonic, time.monotonic_ns: machine.monotonic_ns,
        time.perf_counter: machine.perf_counter, time.perf_counter_ns: machine.perf_counter_ns,
        time.thread_time: machine.thread_time, time.process_time: machine.thread_time,
        time.time: machine.time, time.time_ns: machine.time_ns, time.sleep: machine.sleep,
        os.urandom: machine.entropy, os.statvfs: machine.free,
        socket.create_server: server_of(loop.network), wanted_s: machine.thread_time,
        resource.getrlimit: machine.limit, os.listdir: machine.listed,
        os.preadv: machine.read,
    }  # fmt: skip
    seed = random.Random.seed

    def seeded(self: random.Random, a: Any = None, version: int = 2) -> None:
        seed(self, loop.rng.getrandbits(64) if a is None else a, version)

    with contextlib.ExitStack() as undo:
        for real, virtual in ours.items():
            _set(undo, sys.modules[_home(real)], real.__name__, virtual)
        # The engine gives the library a node's clock at each entry. The clock would keep all nodes
        # of the run in memory.
        library = sys.modules["pysyncobj.syncobj"]
        _set(undo, library, "monotonicTime", vars(library)["monotonicTime"])
        # aiohttp would keep the handlers of all nodes in a cache.
        web = sys.modules["aiohttp.web_app"]
        _set(undo, web, "_cached_build_middleware", vars(web)["_build_middlewares"])
        _set(undo, random, "_urandom", machine.entropy)
        # The segments of a run are small: uploads to a tier have several parts all the same.
        for holder in (local_file, tier_files):
            _set(undo, holder, "PART_BYTES", _PART_BYTES)
        defaults = {**(ChunkCache.__init__.__kwdefaults__ or {}), "chunk_bytes": _CHUNK_BYTES}
        _set(undo, ChunkCache.__init__, "__kwdefaults__", defaults)
        _set(undo, node_tier, "MEMORY_BYTES", 4 * _CHUNK_BYTES)
        _set(undo, node_tier, "_CACHE_BYTES", 8 * _CHUNK_BYTES)
        # Runs are short: a node waits less until it tries again to leave files in the tier only.
        _set(undo, keeping, "_REST_S", _KEEPING_REST_S)
        # A thread that waits for another one lets the loop go on.
        _set(undo, tier_files, "Future", Turned)
        _set(undo, random.Random, "seed", seeded)
        state = random.getstate()
        undo.callback(random.setstate, state)
        random.seed(loop.rng.getrandbits(64))
        for holder, name, virtual in _bound(ours):
            _set(undo, holder, name, virtual)
        yield


def _home(real: Callable[..., Any]) -> str:
    return {"posix": "os"}.get(real.__module__, real.__module__)


def _set(undo: contextlib.ExitStack, holder: Any, name: str, value: Any) -> None:
    undo.callback(setattr, holder, name, vars(holder)[name] if name in vars(holder) else
                  getattr(holder, name))  # fmt: skip
    setattr(holder, name, value)


def _bound(ours: Replaced) -> Iterator[tuple[Any, str, Any]]:
    """Yield what in the product holds a function of the machine: holder, attribute, new value."""
    for module in [each for name, each in sys.modules.items() if name.startswith(_FOLDERS)]:
        for name, value in list(vars(module).items()):
            if isinstance(value, _FUNCTIONS) and value in ours:
                yield module, name, ours[value]
            elif isinstance(value, types.FunctionType):
                yield from _defaults(value, ours)
            elif isinstance(value, type) and value.__module__ == module.__name__:
                yield from _of_class(value, ours)


def _of_class(owner: type, ours: Replaced) -> Iterator[tuple[Any, str, Any]]:
    for name, value in list(vars(owner).items()):
        inner = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(inner, _FUNCTIONS) and inner in ours:
            yield owner, name, staticmethod(ours[inner])
        elif isinstance(inner, types.FunctionType):
            yield from _defaults(inner, ours)


def _defaults(function: types.FunctionType, ours: Replaced) -> Iterator[tuple[Any, str, Any]]:
    def new(value: Any) -> Any:
        is_real = isinstance(value, _FUNCTIONS) and value in ours
        return ours[value] if is_real else value

    places = tuple(map(new, function.__defaults__ or ()))
    if places != (function.__defaults__ or ()):
        yield function, "__defaults__", places
    names = {name: new(value) for name, value in (function.__kwdefaults__ or {}).items()}
    if names != (function.__kwdefaults__ or {}):
        yield function, "__kwdefaults__", names
