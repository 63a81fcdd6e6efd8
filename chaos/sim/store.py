"""What a replica keeps beside its log: state, checkpoints, bases.

A store of the interface that raft.md section 7 asks for: its transactions are atomic, and durable
at commit. A checkpoint freezes the state at one index, and commits that image a while later.
"""

from typing import Any, Final

from .model import ModelState, Reply

Meta = dict[str, Any]
"""A machine's meta store. What is assigned is durable."""

_STATE: Final = "state/{}"


class ReplicaStore:
    """The state of one replica over a machine's meta store."""

    def __init__(self, meta: Meta, number: int) -> None:
        self._meta = meta
        self._row = _STATE.format(number)
        self._frozen: tuple[int, bytes] | None = None
        self.state = ModelState()
        self._load()

    def _load(self) -> None:
        image = self._meta.get(self._row)
        if image is not None:
            self.state = ModelState.from_image(image)
        self._checkpointed = self.state.applied_index

    @property
    def entries_to_checkpoint(self) -> int:
        """Entries applied since the last checkpoint was begun."""
        return self.state.applied_index - self._checkpointed

    def apply(self, index: int, term: int, command: bytes) -> list[Reply]:
        """Apply an entry; a reply for each of its batches."""
        return self.state.apply(index, term, command)

    def freeze(self) -> bool:
        """Begin a checkpoint at the applied index; False if there is nothing new."""
        if self.entries_to_checkpoint == 0:
            return False
        self._checkpointed = self.state.applied_index
        self._frozen = self._checkpointed, self.state.image()
        return True

    def commit_checkpoint(self) -> int | None:
        """Make the frozen state durable; its index, None if a base took its place."""
        frozen, self._frozen = self._frozen, None
        if frozen is None:
            return None
        index, self._meta[self._row] = frozen
        return index

    def export_base(self) -> dict[str, Any] | None:
        """The last checkpoint, for a peer; None without one."""
        image = self._meta.get(self._row)
        if image is None:
            return None
        return {"applied_index": ModelState.from_image(image).applied_index, "image": image}

    def install(self, base: dict[str, Any]) -> None:
        """Replace the state by a peer's, durably."""
        self._frozen = None
        self._meta[self._row] = base["image"]
        self._load()

    def read(self, key: bytes) -> tuple[int, list[tuple[int, bytes]]]:
        """A key's last seq, and its entries as (seq, value)."""
        return self.state.last_seq(key), list(self.state.keys.get(key, ()))

    def contents(self) -> dict[bytes, list[tuple[int, bytes]]]:
        """Every key's entries."""
        return {key: list(entries) for key, entries in self.state.keys.items()}
