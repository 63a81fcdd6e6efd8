"""Say that one is a node of the cluster, and prove nothing; or ask to join, again and again.

`--kind hello` names a node and its cluster in the hello and begins to speak as that node;
`--kind proof` sends a made-up proof; `--kind join` asks to join with an address that nobody can
dial, and with TLS with a good one as well. For `hello` and `proof`, `--address` is that of the port
for peers, and `--metadata` that of the port for clients, which tells the cluster's id.
"""

import argparse
import contextlib
import itertools
import os
import random

from attack import Line, arguments, main

from lognode.client.protocol import frame, frames
from lognode.client.protocol.cluster import METADATA
from lognode.client.protocol.peers import HEARTBEAT, JOIN, RAFT


async def attack(line: Line, options: argparse.Namespace) -> None:
    """One connection after another, until the program ends."""
    cluster = "c"
    if options.metadata:
        told = argparse.Namespace(**{**vars(options), "address": options.metadata})
        asker = await Line.open(told)
        cluster = (await asker.ask(METADATA, {}))["cluster"]
        asker.close()
    for turn in itertools.count():
        with contextlib.suppress(ConnectionError):
            if options.kind == "join":
                await _join(line, options)
            else:
                await _speak(line, options, turn, cluster)
        await line.renew(Line.secured)


async def _speak(line: Line, options: argparse.Namespace, turn: int, cluster: str) -> None:
    """As a node, until the node ends the connection."""
    node = turn % 4 + 1
    welcome = await line.greet(
        "node", cluster=cluster, node=node, incarnation=random.randrange(1 << 63)
    )
    if options.kind == "proof" and welcome["wants_proof"]:
        await line.say(frames.PROOF, {"proof": os.urandom(32)}, 0)
    raft = {"messages": [], "boot": 1 << 61, "process": 1, "clock": 1 << 61, "ping": [0, 0, []]}
    spoken = frame.encode(0, RAFT.number, raft) + frame.encode(1, HEARTBEAT.number, {})
    for _ in range(100):
        await line.write(spoken * 20)
    while True:
        await line.read()


async def _join(line: Line, options: argparse.Namespace) -> None:
    """As a node that is of no cluster yet, with many requests on one connection."""
    await line.greet("node", incarnation=1)
    for number in range(1, 101):
        address = "a..b:1" if number % 2 or not options.ca else "127.0.0.1:9"
        body = {
            "node": None, "incarnation": random.randrange(1 << 62), "boot": 0, "process": 7,
            "address": address, "peer": address, "http": "", "zone": "z" * 64,
        }  # fmt: skip
        await line.write(frame.encode(number, JOIN.number, body))
    for _ in range(100):
        await line.read()


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("--kind", choices=("hello", "proof", "join"), default="hello")
    parser.add_argument("--metadata", default="", help="host:port for clients, of the same node")
    main(attack, parser, begin=Line.secured)
