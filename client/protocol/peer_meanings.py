"""What each field of the messages between nodes means, for `docs/protocol.md`; see `meanings`."""

from collections.abc import Mapping
from typing import Final

PEERS_SHARED: Final[Mapping[str, str]] = {
    "begins": "Whether this is the first page: forget what came of earlier pages.",
    "buckets": "Parts of the metadata that have changed.",
    "busy": "Ranges that this node leads and whose load is above their limit, as `large`.",
    "data": "The bytes.",
    "fingerprint": "A hash of members and lineage: both sides have to mean the same generation.",
    "full": "Whether the pages have all of the metadata, and not only what has changed.",
    "generation": "The generation of the range, or of the controller where no range is named.",
    "index": "The index of an entry of the controller.",
    "large": "Ranges that this node leads and that are above their limit of bytes.",
    "left": "The groups that left the set last.",
    "messages": "Messages of groups, each for the member of a group at the receiver.",
    "number": "The number of the bucket, or how far the table of leaders is known.",
    "range": "The id of the range; 0: the controller.",
    "rate": "Appends and reads a second.",
    "reason": "Why the replica takes no part, for people.",
    "size": "Bytes, or appends and reads a second of a busy range.",
    "table": "The table of the metadata that the bucket is of.",
    "term": "The Raft term.",
    "tick": "How far the pages have come, as the sender counts.",
    "token": "The process that made the page: another process begins anew.",
    "version": "The version of the metadata.",
}
"""Meanings of names in messages between nodes."""

_PAGE: Final = "A page of the metadata; nil: there is nothing newer."
_NEXT: Final = "Where the next page begins; nil: the last page."
_NEXT_PRODUCERS: Final = "The `after` of the next page; nil: the last page."
_LINEAGE: Final = {
    "lineage": "How the sealed generation ended.",
    "lineage.final_index": "The index of its last entry.",
    "lineage.final_term": "The term of that entry.",
    "lineage.next_seq": "The seq that the next record would have had.",
    "lineage.last_timestamp_ms": "The timestamp of its last record.",
    "lineage.state_hash": "A hash of its entries.",
}

PEERS: Final[Mapping[str, Mapping[str, str]]] = {
    "bootstrap": {
        "> members": "Addresses of the nodes that are to found a cluster together, sorted.",
        "> joins": "The cluster that the node is joining; nil: none.",
    },
    "join": {
        "node": "The id that the node had before; nil: it is new.",
        "incarnation": "A random number of the data directory.",
        "boot": "How often the data directory was started.",
        "process": "A random number of this start.",
        "address": "Where the node listens for clients.",
        "peer": "Where the node listens for other nodes.",
        "http": "Where the node listens for HTTP.",
        "zone": "The zone that the operator gave the node.",
        "invitation": "The text of the invitation; nil: the node is known by its key.",
        "> cluster": "The id of the cluster.",
        "> node": "The id of the node from now on.",
        "> peer": "Where the node that answers listens for other nodes.",
    },
    "raft": {
        "messages[].message": "A message of the table below.",
        "reads": "Rounds of read confirmations: whether the sender still leads these groups.",
        "reads[].epoch": "The process that asks.",
        "reads[].round": "The number of the round.",
        "reads[].items": "The groups; nil: a group that does not ask any more.",
        "answers": "Answers to rounds that the receiver has sent.",
        "answers[].epoch": "The process that asked.",
        "answers[].round": "The number of the round.",
        "answers[].numbers": "For each item the number that its question had; nil: no.",
        "boot": "How often the data directory of the sender was started.",
        "process": "A random number of this start of the sender.",
        "clock": "The wall clock of the sender, Unix time in milliseconds.",
        "ping": "Which of the sender's groups rest.",
        "ping.version": "How often groups left the set of those that the sender leads at rest.",
        "ping.seen": "The receiver's version as the sender knows it; 0: unknown.",
    },
    "heartbeat": {
        "leaders": "Who leads which range, as far as the receiver may not know it yet.",
        "leaders[].node": "The leader.",
        "seen": "The controller's leader whose table of leaders the sender knows, and how far.",
        "damaged": "Replicas of the sender that take no part any more.",
        "halted": "Replicas of the sender that met a command of a newer program and wait for an "
        "upgrade of the node.",
        "disk_free": "Free bytes of a disk that is short; nil: there is enough.",
        "leads_left": "Of a node that is drained: how many ranges it still leads.",
        "wishes": "Ranges that an operator wants a node to lead.",
        "wishes[].node": "The node that is to lead.",
        "wishes[].seconds_ago": "When the operator said so.",
        "large[].at": "The key at which the range would be split.",
        "busy[].at": "The key at which the range would be split.",
        "small": "Ranges that this node leads and that may be merged.",
        "insecure": "Whether the sender runs with `--insecure`.",
        "stored": "Bytes that tenants with a quota store in the ranges that this node leads.",
        "> page": _PAGE,
        "> page.next": _NEXT,
        "> leaders": "Who leads which range, as far as the sender may not know it yet.",
        "> leaders[].node": "The leader.",
        "> seen": "The controller's leader whose table this is, and how far the sender knows it.",
        "> damaged": "Replicas that take no part any more, by node.",
        "> halted": "Replicas that wait for an upgrade of their node, by node.",
        "> short": "Nodes whose disks are short.",
        "> short[].bytes_free": "Free bytes of the disk.",
        "> insecure": "Which nodes run with `--insecure`.",
        "> stored": "Bytes that tenants with a quota store in the whole cluster.",
    },
    "image_page": {
        "source": "`newest` or `known`; see above.",
        "since": "The version of the metadata that the sender has.",
        "after": "The `next` of the page before; nil: the first page.",
        "> page": _PAGE,
        "> page.next": _NEXT,
    },
    "command": {"command": "The command, as the controller's log keeps it."},
    "producers_page": {
        "after": "The `next` of the page before; 0: the first page.",
        "limit": "The most producers of the page.",
        "> producers": "The producers, in the order of their first opening.",
        "> producers[].name": "The name of the producer.",
        "> producers[].id": "The id that the name has.",
        "> producers[].epoch": "The epoch of the last opening.",
        "> producers[].opened_ms": "When the name was last opened, in Unix time; nil: unknown.",
        "> next": _NEXT_PRODUCERS,
    },
    "report": {
        "operation": "The id of the operation.",
        "kind": "What the sender has done: its files are copied, the old generation is sealed, "
        "the new one is prepared, or installed.",
        **_LINEAGE,
        "effects": "A hash of what the entries of the generation did, with the version of the hash "
        "and the entry behind which it begins; empty: not known.",
    },
    "loads": {"> loads": "Sizes and rates, as nodes of one version read them."},
    "replica_end": {"> held": "Ends of the log and of the state; nil: no replica is here."},
    "controller_install": {
        "descriptor": "The generation of the controller that is to begin.",
        "page": "A page of the metadata.",
        "page.next": _NEXT,
        "applied": "The entry of the controller that the metadata is at.",
        "> done": "No further page is wanted.",
    },
    "take_over": {"groups": "The groups to stand for election in."},
    "hand_over": {
        "node": "The member that is to lead.",
        "> leader": "The node that leads now.",
        "> changed": "False: it led already.",
    },
    "give_lead": {
        "node": "The member that is to lead.",
        "why": "The reason, for the log of the node.",
        "> given": "Whether this node leads no longer.",
    },
    "base": {
        "> base": "The number of the base.",
        "> bytes": "The size of the base.",
        "> tail_bytes": "Bytes that are in memory behind the base.",
    },
    "base_piece": {
        "base": "The number of the base.",
        "offset": "Where in the base the piece begins.",
    },
    "file": {
        "id": "The id of the file: the hash of its content.",
        "offset": "Where in the file the bytes begin.",
        "bytes": "How many bytes are wanted.",
    },
    "file_check": {
        "id": "The id of the file: the hash of its content.",
        "> sound": "Whether it is.",
    },
}
"""Meanings by operation and path, as in `meanings.OWN`."""
