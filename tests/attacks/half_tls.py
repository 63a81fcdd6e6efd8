"""Begin TLS handshakes and end none of them: half a hello, a whole hello, a hello and garbage.

`--address` may name any port of a node with TLS.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import ssl

from attack import Line, arguments, main

_PATIENCE_S = 0.2


def hello() -> bytes:
    """What a client of TLS 1.3 says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    out_of = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), out_of).do_handshake()
    except ssl.SSLWantReadError:
        return out_of.read()
    raise AssertionError


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    for turn in itertools.count():
        whole = hello()
        data = (whole[: len(whole) // 2], whole, whole + os.urandom(20_000), whole[:1])[turn % 4]
        with contextlib.suppress(ConnectionError, TimeoutError):
            await line.write(data)
            if turn % 4 == 3:
                await line.until_closed()  # the node has to end it
            else:
                await asyncio.wait_for(line.receive(), _PATIENCE_S)
        await line.renew(Line.connect)


if __name__ == "__main__":
    main(attack, arguments(), begin=Line.connect)
