"""What each field of the messages between nodes means, for `docs/protocol.md`; see `meanings`."""

from collections.abc import Mapping
from typing import Final

PEERS_SHARED: Final[Mapping[str, str]] = {
    "begins": "Whether this is the first page: the receiver discards earlier pages.",
    "buckets": "Parts of the metadata that have changed.",
    "busy": (
        "Ranges that this node leads and whose load is above their limit, in the form of `large`."
    ),
    "data": "The bytes.",
    "fingerprint": "A hash of members and lineage: both sides must mean the same generation.",
    "full": "Whether the pages have the whole metadata, and not only changes.",
    "generation": "The generation of the range, or of the controller if no range is named.",
    "index": "The index of an entry of the controller.",
    "large": "Ranges that this node leads and that are above their limit of bytes.",
    "left": "The groups that left the set most recently.",
    "messages": "Messages of groups, each for the member of a group at the receiver.",
    "number": "The number of the bucket, or the position that is known of the table of leaders.",
    "range": "The id of the range; 0: the controller.",
    "rate": "Appends and reads a second.",
    "reason": "The reason why the replica takes no part, for people.",
    "size": "Bytes, or appends and reads a second of a busy range.",
    "table": "The table of the metadata that the bucket is of.",
    "term": "The Raft term.",
    "tick": "The number of pages that have arrived, as the sender counts.",
    "token": "The process that made the page: another process begins from the first page.",
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
        "> joins": "The id of the cluster that the node is joining; nil: none.",
    },
    "join": {
        "node": "The id that the node had before; nil: it is new.",
        "incarnation": "A random number of the data directory.",
        "boot": "The number of starts of the data directory.",
        "process": "A random number of this start.",
        "address": "Where the node listens for clients.",
        "peer": "Where the node listens for other nodes.",
        "http": "Where the node listens for HTTP.",
        "zone": "The zone that the operator gave the node.",
        "levels": "The feature levels that the program of the node knows; nil: the first alone.",
        "levels.low": "The lowest level.",
        "levels.high": "The highest level.",
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
        "answers[].numbers": (
            "For each item the number that its question had; nil: the sender does not confirm "
            "the item."
        ),
        "boot": "The number of starts of the sender's data directory.",
        "process": "A random number of this start of the sender.",
        "clock": "The wall clock of the sender, Unix time in milliseconds.",
        "ping": "The groups of the sender that rest.",
        "ping.version": (
            "The number of times that groups left the set of groups that the sender leads at rest."
        ),
        "ping.seen": "The receiver's version as the sender knows it; 0: unknown.",
    },
    "heartbeat": {
        "leaders": "The leaders of ranges that the receiver may not know yet.",
        "leaders[].node": "The leader.",
        "seen": (
            "The leader of the controller whose table of leaders the sender knows, and the "
            "known position."
        ),
        "damaged": "Replicas of the sender that no longer take part.",
        "halted": (
            "Replicas of the sender that read a command of a newer program and wait for an "
            "upgrade of the node."
        ),
        "disk_free": "Free bytes of a disk that is short of space; nil: the disk has enough.",
        "leads_left": "Of a node that is being drained: the number of ranges that it leads.",
        "wishes": "Ranges that an operator wants a node to lead.",
        "wishes[].node": "The node that is to lead.",
        "wishes[].seconds_ago": "The time of the operator's request.",
        "large[].at": "The key at which the range would be split.",
        "busy[].at": "The key at which the range would be split.",
        "small": "Ranges that this node leads and that may be merged.",
        "insecure": "Whether the sender runs with `--insecure`.",
        "stored": "Bytes that tenants with a quota store in the ranges that this node leads.",
        "kafka": "Where Kafka clients reach the sender; nil: nowhere.",
        "program": "The program that the sender runs; nil: one that knows the first feature level "
        "alone.",
        "program.boot": "The number of starts of the data directory of the sender.",
        "program.process": "A random number of this start of the sender.",
        "program.version": "The version of lognode.",
        "program.low": "The lowest feature level that the program knows.",
        "program.high": "The highest feature level that the program knows.",
        "program.noted": "The feature level that the data directory has noted: an earlier program "
        "does not start on it.",
        "> page": _PAGE,
        "> page.next": _NEXT,
        "> leaders": "The leaders of ranges that the sender may not know yet.",
        "> leaders[].node": "The leader.",
        "> seen": (
            "The leader of the controller whose table this is, and the position that the sender "
            "knows."
        ),
        "> damaged": "Replicas that no longer take part, by node.",
        "> halted": "Replicas that wait for an upgrade of their node, by node.",
        "> kafka": "Where Kafka clients reach each node that serves them.",
        "> kafka[].address": "The address, as `host:port`.",
        "> short": "Nodes whose disks are short of space.",
        "> short[].bytes_free": "Free bytes of the disk.",
        "> insecure": "The nodes that run with `--insecure`.",
        "> stored": "Bytes that tenants with a quota store in the whole cluster.",
        "> alive": "Nodes that the leader heard in the last seconds; nil from an earlier version.",
        "> programs": "The programs that the nodes run, as `program`.",
        "> programs[].node": "The node.",
        "> programs[].boot": "How often its data directory was started.",
        "> programs[].process": "A random number of its start.",
        "> programs[].version": "The version of lognode.",
        "> programs[].low": "The lowest feature level that the program knows.",
        "> programs[].high": "The highest feature level that the program knows.",
        "> programs[].noted": "The feature level that the data directory has noted.",
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
        "kind": (
            "The step that the sender has done: its files are copied, the old generation is "
            "sealed, or the new one is prepared or installed."
        ),
        **_LINEAGE,
        "effects": (
            "A hash of the effects of the generation's entries, with the version of the hash "
            "and the entry behind which the hash begins; empty: not known."
        ),
    },
    "loads": {"> loads": "Sizes and rates, as nodes of one version read them."},
    "replica_end": {"> held": "Ends of the log and of the state; nil: this node has no replica."},
    "controller_install": {
        "descriptor": "The generation of the controller that is to begin.",
        "page": "A page of the metadata.",
        "page.next": _NEXT,
        "applied": "The index of the controller's entry that the metadata includes.",
        "> done": "The receiver wants no further page.",
    },
    "take_over": {"groups": "The groups in which the receiver stands for election."},
    "hand_over": {
        "node": "The member that is to lead.",
        "> leader": "The node that leads now.",
        "> changed": "False: the node led already.",
    },
    "give_lead": {
        "node": "The member that is to lead.",
        "why": "The reason, for the log of the node.",
        "> given": "Whether this node has given the lead up.",
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
        "> sound": "Whether the file is sound.",
    },
}
"""Meanings by operation and path, as in `meanings.OWN`."""
