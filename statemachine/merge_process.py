"""A process for one merge: it starts for the merge, ends with its answer, and gives way.

See `background`. It is not the builder, for which memtables wait. It ends when the node ends.

    standard input     a task
    standard output    ["ok", segment info or nil], ["damaged", segment, text] or ["error", text]
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgpack

from ..client.protocol import limits
from ..client.protocol.errors import CorruptData, Unavailable
from . import background
from .file_hash import hash_file
from .segment_format import SegmentInfo
from .spans import NOTHING, common
from .visibility import Rules, kept_of_key


class Task(NamedTuple):
    """A merge to be done: its inputs and its rules."""

    path: Path
    inputs: Sequence[tuple[Path, SegmentInfo]]
    """Neighbours with the same clip, oldest first."""
    start: bytes
    end: bytes | None
    rules: Rules
    """The rules of the durable base whose manifest names the inputs."""
    oldest: bool
    """Whether the manifest names no older segment with keys of that clip besides the inputs."""
    value_gain: int = limits.value_gain
    """How values are kept, by the level of that base (`rules`)."""

    def to_wire(self) -> list[Any]:
        """Return the task as it is sent."""
        inputs = [[str(source), info.to_wire()] for source, info in self.inputs]
        return [str(self.path), inputs, self.start, self.end, self.rules.wire, self.oldest,
                self.value_gain]  # fmt: skip

    @classmethod
    def from_wire(cls, body: Sequence[Any]) -> "Task":
        """Undo `to_wire`."""
        path, inputs, start, end, rules, oldest, value_gain = body
        pairs = [(Path(source), SegmentInfo.from_wire(info)) for source, info in inputs]
        return cls(Path(path), pairs, start, end, Rules.from_wire(rules), oldest, value_gain)


class Merger:
    """The parent's side. `merge` blocks: call it from a thread, one at a time."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def merge(self, task: Task) -> SegmentInfo | None:
        """Write the kept entries of the inputs to the task's path, synced; None if all are dropped.

        Raises CorruptData, which names the input in `segment`, or Unavailable, with the cause; then
        no file is left, and the caller may repeat the call.
        """
        process = self._process = background.spawn(__name__, str(os.getpid()), gives_way=True)
        if self._stopped:
            process.kill()
        answer, _ = process.communicate(msgpack.packb(task.to_wire()))
        self._process = None
        if process.returncode:
            task.path.unlink(missing_ok=True)
            raise Unavailable(f"the merging process ended with status {process.returncode}")
        status, *fields = msgpack.unpackb(answer)
        if status == "damaged":
            raise CorruptData(fields[1], segment=fields[0])
        if status == "error":
            raise Unavailable(f"merging segments failed: {fields[0]}")
        return None if fields[0] is None else SegmentInfo.from_wire(fields[0])

    def stop(self) -> None:
        """End the process, if there is one, and any later process."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()


def run(task: Task, node: int | None = None) -> SegmentInfo | None:
    """Merge for the node with process number `node`, the parent of this process.

    Without `node`, the caller merges in its own process.
    """
    for source, info in task.inputs:
        # The output gets a name of its own: damage that is merged could not be found later.
        found = hash_file(source) if source.exists() else None
        if found != info.content_id:
            what = f"is damaged: its SHA-256 is {found}" if found else "is missing"
            raise CorruptData(f"segment {info.content_id} {what}", segment=info.content_id)
    from .merge import merge  # with numpy, which the node's process does not need

    rules = task.rules
    start, end = common(task.inputs[0][1].clip, (task.start, task.end)) or NOTHING
    kept = partial(kept_of_key, rules, oldest=task.oldest) if rules.hides else None
    merged = merge(
        task.path, task.inputs, start=start, end=end, kept=kept,
        on_step=lambda: _check_parent(node), value_gain=task.value_gain,
    )  # fmt: skip
    try:
        _check_parent(node)
    except Unavailable:
        task.path.unlink(missing_ok=True)
        raise
    return merged


def _check_parent(node: int | None) -> None:
    """Raise Unavailable when the node has ended, since nobody waits for the answer.

    The node may end before this process has done anything: the parent's number is then another one.
    """
    if node is not None and os.getppid() != node:
        raise Unavailable("the node has ended")


def main() -> None:
    """The child's side."""
    request = msgpack.unpackb(sys.stdin.buffer.read(), strict_map_key=False)
    answer: list[Any]
    try:
        answer = ["ok", run(Task.from_wire(request), int(sys.argv[1]))]
    except CorruptData as error:
        answer = ["damaged", error.fields.get("segment"), error.message]
    except Exception as error:  # the parent decides how to react
        answer = ["error", f"{type(error).__name__}: {error}"]
    sys.stdout.buffer.write(msgpack.packb(answer))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
