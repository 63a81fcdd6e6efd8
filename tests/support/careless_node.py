"""A node of before there was a rule for addresses: it takes any text from its operator and from a
node that joins, and proposes the text. Run as a program, with the arguments of a node."""

import sys
from typing import Any

from lognode.client.protocol import peers
from lognode.client.protocol.address import Address
from lognode.node import config, main


def _anything(value: Any, name: str) -> Any:
    return value


def _split(text: str, what: str = "address") -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


if __name__ == "__main__":
    peers.ADDRESS.check = _anything  # type: ignore[method-assign]
    config.split_address = _split  # type: ignore[assignment]
    sys.exit(main.main())
