"""A node of before there was a rule for addresses: it takes any text from its operator and from
whoever joins, and proposes that. Run as a program, with the arguments of a node."""

import sys
from typing import Any

from lognode.client.address import Address
from lognode.node import config, main
from lognode.partitions import commands, proposals


def _anything(value: Any, name: str) -> Any:
    return value


def _split(text: str, what: str = "address") -> Address:
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


if __name__ == "__main__":
    fields: Any = proposals._FIELDS[commands.REGISTER]
    fields.update(address=_anything, http=_anything, zone=_anything)
    config.split_address = _split  # type: ignore[assignment]
    sys.exit(main.main())
