"""A controller's log without the group: commands are applied one by one, and refused ones change
nothing."""

from typing import Any

from sent_metadata import received, received_change, sent

from lognode.partitions.commands import decode, encode
from lognode.partitions.metadata import Metadata


class Controller:
    """A Metadata that replays itself after every command."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.log: list[bytes] = []
        self.over: set[tuple[int, int]] = set()
        """Generations whose replicas might have gone."""

    def do(self, op: str, **fields: Any) -> dict[str, Any]:
        data = encode({"op": op, **fields})
        self.log.append(data)
        before = self.metadata.image()
        command = decode(data)
        assert command is not None
        answer = self.metadata.apply(len(self.log) + 1, 1, command)
        if "error" in answer:
            assert self.metadata.image() == before, "a refused command changed something"
        assert Metadata.from_image(self.metadata.image()).image() == self.metadata.image()
        self.check_received(before)
        self._check_over()
        return answer

    def check_received(self, *earlier: dict[str, Any]) -> None:
        """Other nodes take this image, whatever earlier state they have, and each that was."""
        for image in earlier:
            known = Metadata.from_image(image)
            for take in (received, received_change):
                assert take(sent(self.metadata), known).image() == self.metadata.image()
                assert take(sent(known), self.metadata).image() == image

    def _check_over(self) -> None:
        """Nothing is over that still serves, or that an operation takes or makes; and what is over
        stays so (x2.17)."""
        metadata = self.metadata
        needed = {(range_.range_id, range_.generation) for range_ in metadata.ranges.values()}
        for operation in metadata.operations.values():
            needed.update(operation.inputs)
            needed.update((output.range_id, output.generation) for output in operation.outputs)
        assert not [gid for gid in needed if metadata.is_done(*gid)]
        assert all(metadata.is_done(*gid) for gid in self.over)
        known = ((range_id, g) for range_id in range(12) for g in range(1, 6))
        self.over.update(gid for gid in known if metadata.is_done(*gid))
        assert not metadata.is_done(0, 1)
        assert not metadata.is_done(metadata.next_ids["range"], 1)

    def nodes(self, count: int) -> "Controller":
        self.do("found", cluster="c", node=1)
        for node in range(1, count + 1):
            self.register(node)
        return self

    def register(
        self, incarnation: int, node: int | None = None, boot: int = 1, key: str = ""
    ) -> dict[str, Any]:
        return self.do("register", incarnation=incarnation, boot=boot, node=node, zone="",
                       address=f"h{incarnation}:1", http="", key=key)  # fmt: skip
