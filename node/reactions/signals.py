"""Signals: SIGTERM and SIGINT stop the node, SIGHUP makes the node read given files again."""

import asyncio
import signal

from ..certificates.tls import NodeTls
from ..directory.given_files import DialMap
from ..links.peers import PeerLinks
from ..runtime.shutdown import Shutdown


def react_to_signals(
    shutdown: Shutdown, tls: NodeTls | None, dial_map: DialMap, links: PeerLinks
) -> None:
    """React to signals from now on. Call this in the loop of the main thread."""

    def read_again() -> None:
        """Read the dial map and the TLS files again; invalid files change nothing."""
        if tls is not None:
            tls.look_again()
        if dial_map.read_again():
            links.redial()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.ask)
    loop.add_signal_handler(signal.SIGHUP, read_again)
