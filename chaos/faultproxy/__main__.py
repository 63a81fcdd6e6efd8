"""`python -m lognode.chaos.faultproxy --host HOST --port PORT`: serve until SIGTERM or Ctrl-C."""

import argparse
import asyncio
import signal
import sys

from .api import FaultProxy


async def _serve(host: str, port: int) -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    server = FaultProxy()
    await server.start(host, port)
    sys.stdout.write(f"proxies are made at http://{server.address}\n")
    sys.stdout.flush()
    await ended.wait()
    await server.stop()


def main() -> int:
    """Run the server; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lognode.chaos.faultproxy",
        description="A TCP proxy that injects faults, with the HTTP API of Toxiproxy.",
    )
    parser.add_argument("--host", default="localhost", help="host of the API; default localhost")
    parser.add_argument("--port", type=int, default=8474, help="port of the API; default 8474")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(arguments.host, arguments.port))
    except OSError as error:
        sys.stderr.write(f"faultproxy: {error}; choose another port with --port\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
