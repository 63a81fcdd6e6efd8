"""The compiled writer of WAL rounds and its twin, a thread of Python: same files, same errors."""

import asyncio
import errno
import gc
import os
import random
import resource
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lognode.client.protocol.invariants import DiskFailure
from lognode.node.runtime import surroundings
from lognode.node.runtime.sync_thread import SyncThread
from lognode.node.runtime.wal_writer import CompiledWriter, WalWriter, compiled
from lognode.raft.os_disk import OsDisk
from lognode.raft.wal import Rotation, Round, Wal
from lognode.raft.wal_format import Header
from lognode.raft.wal_scan import file_name

needs_compiled = pytest.mark.skipif(compiled is None, reason="no compiled module is installed")
NUMBER = 7
NAME = file_name(NUMBER)


def test_the_module_is_compiled_where_it_is_tested() -> None:
    wanted = os.environ.get("CI") == "true" and not os.environ.get("LOGNODE_PURE")
    assert not wanted or compiled is not None


def round_of(buffers: list[bytes], *, offset: int = 0, sync: bool = True) -> Round:
    return Round(1, sync, NUMBER, offset, buffers, None)


class Writing:
    """A writer with its disk, in a directory where the file of all rounds is open."""

    def __init__(self, directory: Path, *, is_compiled: bool) -> None:
        self.file = directory / NAME
        self.disk = OsDisk(directory)
        self.wal = Wal.open(self.disk, entropy=bytes, file_bytes=1 << 20)
        self.failures: list[BaseException] = []
        self.syncs: list[float] = []
        self.thread = SyncThread("wal", on_failure=self.failures.append)
        self.writer = WalWriter(self.wal, self.thread)
        if is_compiled:
            self.writer = CompiledWriter(
                self.wal, self.thread, self.disk,
                on_failure=self.failures.append, on_sync=self.syncs.append,
            )  # fmt: skip

    async def write(self, round_: Round) -> BaseException | None:
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.writer.write(round_, lambda _, error: done.set_result(error))
        async with asyncio.timeout(20):
            return await done

    def close(self) -> None:
        self.writer.close()
        self.thread.close()
        self.disk.close()


def run(directory: Path, test: Callable[[Writing], Any], *, is_compiled: bool) -> Any:
    """Run the test in a directory of its own; return what the test returns, and what is noted."""
    own = directory / ("compiled" if is_compiled else "python")
    own.mkdir()

    async def main() -> Any:
        writing = Writing(own, is_compiled=is_compiled)
        try:
            found = await test(writing)
            noted = writing.wal.syncs, writing.wal._unsynced_write, set(writing.disk._unsynced)
            return found, noted, dict(writing.disk._lent), [*map(str, writing.failures)]
        finally:
            writing.close()

    return asyncio.run(main())


def both(directory: Path, test: Callable[[Writing], Any]) -> Any:
    """Run the test with both writers, which do the same; return what came out of it."""
    outcomes = [run(directory, test, is_compiled=each) for each in (False, True)]
    python, c = [repr(outcome).replace(f"{directory}/compiled", f"{directory}/python")
                 for outcome in outcomes]  # fmt: skip
    assert python == c
    return outcomes[1]


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """No file may grow above `size` bytes: the kernel cuts a write short, and refuses the next."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@needs_compiled
@pytest.mark.parametrize("sync", [True, False])
def test_both_write_the_same_bytes(tmp_path: Path, sync: bool) -> None:
    rng = random.Random(3)
    counts = [0, 1, 2, 511, 512, 513, 1024, 1500]
    rounds = [[rng.randbytes(rng.choice([0, 0, 1, 40, 5000])) for _ in range(n)] for n in counts]

    async def test(writing: Writing) -> bytes:
        writing.disk.create(NAME, 100)
        offset = 3
        for buffers in rounds:
            assert await writing.write(round_of(buffers, offset=offset, sync=sync)) is None
            offset += sum(map(len, buffers))
        return writing.file.read_bytes()

    found, (syncs, unsynced, _), lent, failures = both(tmp_path, test)
    joined = b"".join(map(b"".join, rounds))
    assert found[3:] == joined
    assert (syncs, unsynced) == (len(rounds) if sync else 0, not sync)
    assert (lent, failures) == ({}, [])


@needs_compiled
@pytest.mark.parametrize("room", [0, 10, 4095, 4096, 70_000])
def test_both_tell_a_full_disk_in_the_same_way(tmp_path: Path, room: int) -> None:
    buffers = [bytes([n % 251]) * 1000 for n in range(100)]

    async def test(writing: Writing) -> tuple[str, bytes]:
        writing.disk.create(NAME, 0)
        with at_most(room):
            error = await writing.write(round_of(buffers))
        assert isinstance(error, DiskFailure)
        return str(error), writing.file.read_bytes()

    (error, written), *_, failures = both(tmp_path, test)
    assert error == f"writing {tmp_path}/compiled/{NAME} failed: File too large (EFBIG)"
    assert written == b"".join(buffers)[:room]
    assert failures == [error]


@needs_compiled
@pytest.mark.parametrize(
    ("device", "told"),
    [
        ("full", "writing {} failed: No space left on device (ENOSPC)"),
        ("null", "fdatasync of {} failed: Invalid argument (EINVAL)"),  # it cannot be synced
    ],
)
def test_both_tell_which_call_failed(tmp_path: Path, device: str, told: str) -> None:
    async def test(writing: Writing) -> str:
        writing.file.symlink_to(f"/dev/{device}")
        writing.disk.size(NAME)  # opens the file
        return str(await writing.write(round_of([b"abc", b"def"])))

    found, (syncs, *_, unsynced), _, failures = both(tmp_path, test)
    assert found == told.format(f"{tmp_path}/compiled/{NAME}")
    assert failures == [found], "told once, before the round is told"
    assert (syncs, unsynced) == (0, {NAME}), "a failed sync counts as none"


@needs_compiled
def test_rounds_go_to_the_thread_of_the_wal_where_their_file_is_not_open(tmp_path: Path) -> None:
    """The compiled writer opens no file: that may block the loop."""

    async def test(writing: Writing) -> None:
        writer = writing.writer
        assert isinstance(writer, CompiledWriter)
        writing.file.write_bytes(b"")
        assert await writing.write(round_of([b"a"])) is None
        assert writing.syncs == [], "the thread has done it"
        assert await writing.write(round_of([b"b"], offset=1)) is None
        assert len(writing.syncs) == 1
        header = Header(NUMBER + 1, 4096, 2, bytes(4))
        begins = Round(2, True, NUMBER + 1, 64, [b"c"], Rotation(header, None, 0))
        assert await writing.write(begins) is None
        assert len(writing.syncs) == 1
        with writing.disk._lock:  # another thread opens a file: the loop does not wait
            assert writing.disk.lend_open(NAME) is None

    run(tmp_path, test, is_compiled=True)


def test_without_a_compiler_the_thread_of_the_wal_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surroundings, "compiled", None)

    async def test(writing: Writing) -> None:
        found = surroundings.Surroundings().writer(
            writing.wal, writing.thread, writing.disk, on_failure=print, on_sync=print
        )
        assert type(found) is WalWriter

    run(tmp_path, test, is_compiled=False)


# The compiled module by itself.


@needs_compiled
class TestModule:
    @pytest.fixture
    def fd(self, tmp_path: Path) -> Iterator[int]:
        fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        yield fd
        os.close(fd)

    def taken(self, writer: Any) -> Any:
        """Wait for the end of the job."""
        ends = select.poll()  # `select` takes no descriptor above 1023
        ends.register(writer.fileno(), select.POLLIN)
        while (found := writer.take()) is None:
            assert ends.poll(20_000), "the job does not end"
        return found

    def test_a_job_at_a_time(self, fd: int) -> None:
        writer = compiled.Writer()
        assert writer.take() is None
        writer.submit(fd, 0, [b"a"], True)
        with pytest.raises(RuntimeError, match="take the result first"):
            writer.submit(fd, 0, [b"b"], True)
        step, number, seconds = self.taken(writer)
        assert (step, number) == ("", 0)
        assert seconds > 0
        assert writer.take() is None
        writer.submit(fd, 1, [b"b"], False)
        assert self.taken(writer) == ("", 0, 0.0)
        assert os.pread(fd, 9, 0) == b"ab"
        writer.close()

    def test_the_bytes_stay_while_they_are_written(self, fd: int) -> None:
        writer = compiled.Writer()
        for at in range(20):
            buffers = [os.urandom(1 << 20)]
            wanted = bytes(buffers[0][:16])
            writer.submit(fd, at << 20, buffers, False)
            buffers.clear()
            gc.collect()
            self.taken(writer)
            assert os.pread(fd, 16, at << 20) == wanted
        writer.close()

    @pytest.mark.parametrize("how", ["close", "forget"])
    def test_the_end_of_the_writer_finishes_the_job(self, fd: int, how: str) -> None:
        threads = len(os.listdir("/proc/self/task"))
        for _ in range(20):
            writer = compiled.Writer()
            writer.submit(fd, 0, [b"x" * (8 << 20)], True)
            event = writer.fileno()
            if how == "close":
                writer.close()
                writer.close()
                for call in (writer.take, writer.fileno, lambda: writer.submit(fd, 0, [], True)):  # noqa: B023
                    with pytest.raises(RuntimeError, match="closed"):
                        call()
            else:
                del writer
            assert os.fstat(fd).st_size == 8 << 20
            os.ftruncate(fd, 0)
            with pytest.raises(OSError, match="Bad file descriptor"):
                os.fstat(event)
        assert len(os.listdir("/proc/self/task")) == threads

    def test_two_threads_may_close_the_writer(self, fd: int) -> None:
        writer = compiled.Writer()
        writer.submit(fd, 0, [b"x" * (8 << 20)], True)
        others = [threading.Thread(target=writer.close) for _ in range(2)]
        for other in others:
            other.start()
        for other in others:
            other.join()
        assert os.fstat(fd).st_size == 8 << 20

    def test_a_child_process_leaves_the_thread_alone(self, fd: int) -> None:
        writer = compiled.Writer()
        writer.submit(fd, 0, [b"x" * (8 << 20)], True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                writer.submit(fd, 0, [b""], True)
            except RuntimeError as error:
                code = 0 if "parent" in str(error) else 2
            writer.close()
            del writer
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert self.taken(writer)[:2] == ("", 0)
        writer.close()

    def test_signals_go_to_the_threads_of_python(self, fd: int) -> None:
        """A signal interrupts no write, and wakes Python."""
        before = set(os.listdir("/proc/self/task"))
        writer = compiled.Writer()
        writer.submit(fd, 0, [b"a"], True)
        self.taken(writer)  # the thread has begun: the C library blocks all signals until then
        (thread,) = set(os.listdir("/proc/self/task")) - before
        status = Path(f"/proc/self/task/{thread}/status").read_text("ascii")
        blocked = int(status.split("SigBlk:")[1].split()[0], 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            assert blocked >> (number - 1) & 1
        assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()), "the caller's are as before"
        writer.close()

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            ((), TypeError),
            ((1, 0, (b"a",), True), TypeError),
            ((1, 0, ["a"], True), TypeError),
            ((1, 0, [bytearray(1)], True), TypeError),
            (("1", 0, [], True), TypeError),
            ((-1, 0, [], True), ValueError),
            ((1 << 31, 0, [], True), ValueError),
            ((1 << 70, 0, [], True), OverflowError),
            ((1, -1, [], True), ValueError),
            ((1, 1 << 70, [], True), OverflowError),
        ],
    )
    def test_bad_arguments(self, arguments: tuple[Any, ...], error: type[Exception]) -> None:
        writer = compiled.Writer()
        with pytest.raises(error):
            writer.submit(*arguments)
        assert writer.take() is None
        writer.close()
        with pytest.raises(TypeError):
            compiled.Writer(1)

    def test_a_closed_descriptor_is_an_error_of_the_job(self) -> None:
        fd = os.open("/dev/null", os.O_RDONLY)
        writer = compiled.Writer()
        writer.submit(fd, 0, [b"a"], True)
        assert self.taken(writer)[:2] == ("write", errno.EBADF)
        os.close(fd)
        writer.close()
