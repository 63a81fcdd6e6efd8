"""A controller's log without the group: commands are applied one by one, and refused ones change
nothing."""

from typing import Any

import msgpack

from lognode.partitions.commands import decode, encode
from lognode.partitions.metadata import Metadata
from lognode.partitions.received import received


class Controller:
    """A Metadata that replays itself after every command."""

    def __init__(self) -> None:
        self.metadata = Metadata()
        self.log: list[bytes] = []

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
        return answer

    def check_received(self, *earlier: dict[str, Any]) -> None:
        """Other nodes take this image, whatever earlier state they have, and each that was."""
        sent = msgpack.unpackb(msgpack.packb(self.metadata.image()), strict_map_key=False)
        for image in earlier:
            known = Metadata.from_image(image)
            assert received(sent, known).image() == self.metadata.image()
            back = msgpack.unpackb(msgpack.packb(image), strict_map_key=False)
            received(back, self.metadata)

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
