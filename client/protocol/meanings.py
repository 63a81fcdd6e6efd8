"""What each field of the messages between clients and nodes means, for `docs/protocol.md`.

The page is made from this module and the table; no program reads it at run time. A path of a field
is as in `fields`; `> ` before it: a field of the answer, or of a push. `meaning` looks under the
operation first, and then for the last name of the path among `SHARED`. `peer_meanings` has the
operations between nodes.
"""

from collections.abc import Mapping
from typing import Final

from . import limits
from .cursor_meanings import CURSORS
from .group_meanings import GROUPS
from .log_meanings import LOGS
from .peer_meanings import PEERS, PEERS_SHARED
from .view_meanings import VIEWS

SHARED: Final[Mapping[str, str]] = {
    "actual": "For each position in `refused`: the last seq of its key then, 0 for none.",
    "after": "The last id of the page before; 0: the first page.",
    "> applied": "The index of the range's last applied entry that this answer shows. The client "
    "sends the highest one of a generation with its next prefix reads.",
    "applied": "Of prefix reads: the highest `applied` that the client has seen in an answer of "
    "this range and generation. A replica that is behind answers UNAVAILABLE with the reason "
    "`behind`; ask another member.",
    "as_of": "The name of a lease: the read shows what the snapshot of that lease shows. "
    "NOT_FOUND: the lease has ended.",
    "at_least": "A version of the metadata that the client has seen. The node waits half a second "
    "for metadata as new.",
    "bands": "Bands of seqs that are not read to their end, in the order of `first`.",
    "bytes": "Bytes of entries after which the page ends. A page has one entry at least.",
    "cluster": "The id of the cluster. It never changes.",
    "consistency": "`linearizable`: the answer shows each append that was acknowledged before the "
    "request. `prefix`: the answer may be older, and costs no round between nodes.",
    "created_ms": "When it was made, in Unix time.",
    "cpu_ms": "Milliseconds of the node's event loop.",
    "append_bytes": "Bytes appended.",
    "append_records": "Records appended.",
    "read_bytes": "Bytes of answers to reads.",
    "read_records": "Entries read.",
    "requests": "How many requests.",
    "refused": "Requests that were refused for a quota.",
    "stored_bytes": "Bytes stored, of each range as its leader stores it; nodes that do not count "
    "them say 0.",
    "delete_retention_ms": "With compaction: how long tombstones stay; nil: a day.",
    "digest": "SHA-256 of the whole text of the token.",
    "end": "A seq: the read has entries below it alone; nil: to the newest.",
    "end_key": "The read has keys below it alone; nil: to the end of the range.",
    "> end_key": "The answer has the keys below it alone: the other keys asked for are asked for "
    "by themselves, from the same position; nil: all keys asked for that are the range's.",
    "epoch": "The epoch of the producer, from `producer_open`.",
    "expires_ms": "When it ends, in Unix time; nil: never.",
    "effects": "Hashes of what the entries of the parents did.",
    "from": "The member that gives its replica up.",
    "generation": "The generation of the range. It grows with each split, merge or move.",
    "grant": "The `grant` of `producer_open`, of the ids that the request names; nil on a cluster "
    "without tokens.",
    "headers": "Headers by the position of their entry in the page; nil: no entry has any.",
    "insecure": "Whether the node runs with `--insecure`; nil: unknown.",
    "kafka_partitions": "How many Kafka partitions the log has; missing: the log has none.",
    "keys": "The key of each entry; one key in place of the array where all entries have that key.",
    "> leader": "Only of an answer from a member that does not lead: the leader; nil: unknown.",
    "lease": "The name of a lease, which the client draws: 16 random bytes in hexadecimal do.",
    "limit": "The most elements of a page. A page may have fewer, and still be followed by others.",
    "lineage": "Sealed parents of the generation.",
    "log": "The name of a log.",
    "met_at": "Keys at which the spans of the parents met.",
    "more": "Whether the read ended before the end of what was asked for: there may be entries "
    "behind `next`.",
    "name": "The name of the log.",
    "> next": "The `start` of the next page: entries below it are in this page and those before.",
    "node": "Only the replica of this node may answer: any other node answers NODE_NOT_FOUND; nil: "
    "whichever node gets the request.",
    "operation": "The id of the operation that has begun.",
    "owner": "The principal that opened the name; empty: opened before the cluster had tokens.",
    "hierarchy": "The separator of the levels of keys; nil and missing: the log has no hierarchy.",
    "patterns": "Of many keys: choose the keys that these patterns match; nil: every key.",
    "separator": "The separator of the log's hierarchy; empty: the log has none, and a "
    "key is one level.",
    "texts": "The patterns, as Patterns of keys says.",
    "> matched": "The answer has only what the patterns choose. Missing with patterns: the node is "
    "of an earlier version and has answered for every key, so the client chooses by itself.",
    "policy": "The rules of the log; nil: there is no such rule.",
    "prefix": "The read has keys that begin with these bytes alone.",
    "principal": "The name of the principal. Several tokens may have one.",
    "quota_class": "The quota that holds for the principal.",
    "range": "The id of the range.",
    "since": "A version of the metadata that the client knew before it sent this attempt; missing: "
    "a late attempt may undo what was done after it. See Repetitions of administration.",
    "replicas": "How many replicas each range has.",
    "retention_bytes": "Of each range so many bytes of segments stay at least; older ones may go.",
    "local_retention_bytes": "Of each range, a node with a tier keeps about so many bytes of "
    "segments on its own disk; older ones are in the tier only.",
    "retention_ms": "Entries older than this may go.",
    "cleanup": "`delete`: old entries go. `compact`: each key keeps its last entry for ever. "
    "`compact,delete`: both, so that old entries go.",
    "scopes": "What the principal may do. A request needs one scope that allows it.",
    "verbs": "Permissions of the scope; `permission` of each operation names what it needs.",
    "seqs": "The seq of each entry.",
    "snapshot_delay_ms": "What a key had before a logical snapshot goes so long after it.",
    "snapshots": "Positions of the entries that are logical snapshots; nil: there is none.",
    "split_bytes": "A range with more bytes of segments is split.",
    "split_rate": "A range with more appends and reads a second is split.",
    "start_key": "The read has keys from this key on; empty: from the first key on.",
    "through": "The replica answers once it has applied this seq; nil: at once.",
    "timeout_ms": "How long the node may take; it then answers TIMEOUT. A node waits 60 s for a "
    "read at most.",
    "timestamps": "When each entry was appended, in Unix time in milliseconds. It never falls "
    "within a range.",
    "values": "The value of each entry; nil: a tombstone.",
    "version": "The version of the metadata that shows the change.",
}
"""Meanings of names that mean the same wherever no operation says otherwise."""

_PLANNED: Final = {
    "> version": "Metadata of this version and later shows the operation.",
    "> generation": "The generation that is to begin.",
}
_NODE_STATE: Final = {
    "> node": "The id of the node.",
    "> state": "`JOINING`, `ACTIVE`, `DRAINING`, `DEAD` or `REMOVED`.",
    "> replicas": "How many replicas the node has.",
}
_EMPTIES: Final = {"keys": "The keys, each with its seq.", "keys[].key": "The key."}
_DESCRIPTORS: Final = {
    "> ranges[].id": "The id of the range.",
    "> ranges[].log": "The id of the log.",
    "> ranges[].start": "The range has the keys from this key on; empty: from the first key on.",
    "> ranges[].end": "The range has the keys below it; nil: to the end of all keys.",
    "> ranges[].members": "The nodes that have a replica.",
    "> ranges[].leader": "The node that leads, as far as this node knows; nil: unknown.",
    "> ranges[].operation": "The operation that changes the range; 0: none.",
    "> ranges[].state": "`ACTIVE`; other states are for nodes.",
}
_PRODUCER_ROWS: Final = {
    "after": "The `next` of the page before; 0: the first page.",
    "> producers": "The producers, in the order of their first opening.",
    "> producers[].name": "The name of the producer.",
    "> producers[].id": "The id that the name has.",
    "> producers[].epoch": "The epoch of the last opening.",
    "> producers[].opened_ms": "When the name was last opened, in Unix time; nil: unknown.",
    "> next": "The `after` of the next page; nil: the last page.",
}
_CHUNKS: Final = {
    "> chunks": "The entries, in the order in which they are read; see Chunks.",
    "> chunks[].rows": "How many entries the chunk has.",
    "> chunks[].first_seq": "What is added to each number of `seqs`.",
    "> chunks[].first_ms": "What is added to each number of `timestamps`.",
    "> chunks[].key_lengths": "u16, of each key of `keys`.",
    "> chunks[].repeats": "u32: how many entries each key has, one after the other; nil: one each.",
    "> chunks[].keys": "The keys, one behind the other.",
    "> chunks[].seqs": "u32 or u64, of each entry: bytes / `rows` is 4 or 8.",
    "> chunks[].timestamps": "u32 or u64, of each entry.",
    "> chunks[].value_lengths": "u32, of each entry; 2^32 - 1: a tombstone, without bytes.",
    "> chunks[].values": "The values, one behind the other.",
    "> chunks[].headers": "Headers by the position of their entry in the chunk; nil: none.",
    "> chunks[].snapshots": "Positions of logical snapshots in the chunk; nil: none.",
}
_POSITION: Final = {
    f"{side}position{field}": text
    for side in ("", "> ")
    for field, text in (
        (".bands[].first", "The band begins with this seq."),
        (".bands[].end", "The band ends below this seq."),
        (".bands[].key", "The band goes on with this key; empty: with the first."),
        (".bands[].seq", "Of that key the band goes on with this seq."),
        (".next", "All seqs from here on are still to be read."),
    )
}

OWN: Final[Mapping[str, Mapping[str, str]]] = {
    "HELLO": {
        "magic": "Says that the dialler speaks this protocol.",
        "versions": "The versions of the protocol that the dialler speaks.",
        "versions.min": "The lowest.",
        "versions.max": "The highest.",
        "role": "`client`; `node` is for nodes.",
        "cluster": "The id of the cluster, once the client knows it: a node of another cluster "
        "refuses the connection. nil: not known yet.",
        "node": "The id of the node that dials; nil of a client.",
        "incarnation": "0 of a client.",
        "nonce": "Random bytes, new for each connection.",
        "compressions": "`zstd`, if the dialler can read it. No answer is compressed today.",
        "token": "The token of the client; nil: none.",
    },
    "WELCOME": {
        "version": "The highest version that both sides speak.",
        "cluster": "The id of the cluster; nil: the node is of no cluster yet.",
        "node": "The id of the node; nil: it has none yet.",
        "nonce": "Random bytes, new for each connection.",
        "wants_proof": "A node has to send PROOF; false for clients.",
    },
    "PROOF": {"proof": "The proof of the sender."},
    "CREDIT": {"bytes": "Bytes of PUSH frames that the client has read."},
    "append": {
        "batches": "Record batches, packed; see Record batches. All of one producer.",
        "timeout_ms": "How long the client waits. The node does not give an append up.",
        "trace": "The `traceparent` (W3C Trace Context) of the client's span, if the client is "
        "traced. The spans of a node that exports traces belong to it.",
        "> results": "The result of each batch, in the order of `batches`.",
        "> results[].status": "`ok`, or `error`: nothing of the batch was appended by this request "
        "unless the outcome of the error says otherwise.",
        "> results[].first_seq": "All records are new: the seq of the first. The others follow "
        "one by one. Nil: see `seqs`.",
        "> results[].seqs": "Without `first_seq`: the seq of each record. Nil: a duplicate whose "
        "seq is forgotten, or a record in `refused`.",
        "> results[].duplicates": "Positions of the records that an earlier request had appended.",
        "> results[].timestamp_ms": "The timestamp of the new records.",
        "> results[].refused": "Positions of the records that were left out since their "
        "conditions did not hold.",
        "> results[].error": "With the status `error`: why; see Errors.",
    },
    "fence": {"id": "The id of the producer.", "epoch": "The lowest epoch that is not refused."},
    "producer_close": {"id": "The id of the producer."},
    "producer_number": {
        "producer": "The id of the producer.",
        "number": "The number of a record of the producer.",
        "applied": "As in other reads.",
        "> applied": "Whether the range has applied the number. It stays true below `low`.",
        "> seq": "The seq of the record; nil: unknown.",
    },
    "trim": {**_EMPTIES, "keys[].before": "Entries of the key below this seq go."},
    "delete_keys": {
        **_EMPTIES,
        "keys[].before": "Entries of the key below this seq go.",
    },
    "lease": {
        "start_key": "The lease holds keys of the range from this key on. The key is the range's.",
        "end_key": "The lease holds keys below it alone; nil: to the end of the range.",
        "through": "The lease holds entries up to this seq, inclusive.",
        "lease_ms": "How long the lease lasts from now on.",
        "renew": "Renew alone: NOT_FOUND where the lease has ended.",
        "> end_key": "The lease holds the keys below it; nil: to the end of all keys. Where it is "
        "below the `end_key` of the request, lease the rest from this key on.",
        "> expires_ms": "When the lease ends, by the clock of the range, in Unix time.",
        "> applied": "The index of the entry that took the lease.",
    },
    "restore": {
        "next_seq": "The seq that the next entry of the range gets after this request. A request "
        "whose `next_seq` the range has reached changes nothing.",
        "rows": "Batches without producer and conditions; all seqs rise.",
        "rows[].timestamp_ms": "The timestamp of all records of the batch.",
        "rows[].seqs": "The seq of each record, eight bytes each, little-endian.",
        "rows[].batch": "The records.",
        "> next_seq": "The seq that the next entry of the range gets.",
    },
    **CURSORS,
    **GROUPS,
    **LOGS,
    **VIEWS,
    "latest": {
        "turn": "`take`: the leader answers when the turn of this client begins, or after 1.5 "
        "seconds. A turn ends with the next entry of the key, or after half a second. `end`: the "
        "turn of the next client begins. Nil: without turns.",
        "key": "The key.",
        "> more": "Whether the key has older entries.",
        "> next": "Of no use here.",
        "> end_key": "Always nil here.",
    },
    "count": {
        "key": "The key.",
        "start": "Entries from this seq on are counted.",
        "end": "Entries below this seq are counted; nil: to the newest.",
        "> count": "How many entries the key has there.",
    },
    "scan": {
        "key": "The key.",
        "start": "The first seq wanted.",
        "reverse": "Newest first.",
        "> next": "The `start` of the next page; with `reverse` its `end`.",
        "> end_key": "Always nil here.",
    },
    "keys": {
        "start_after": "The page begins behind this key; nil: with the first.",
        "> keys": "The keys, in their order. The page may be empty and have `more`.",
        "> more": "Whether another page follows.",
        "> after": "With `more`: the `start_after` of the next page.",
    },
    "read_span": {
        "start": "The first seq wanted.",
        "columns": "Whether the entries are wanted as chunks.",
        **_CHUNKS,
    },
    "export": {
        "position": "The `position` of the page before; nil: the begin.",
        "> position": "The `position` of the next page; nil: the span is read to its end.",
        **_POSITION,
        **_CHUNKS,
    },
    "resolve": {
        "key": "The key that the position is of; nil: the span from `start_key` to `end_key`.",
        "start": "The position.",
        "start.how": "`ts`: the first entry at or behind a time. `tail`: the last entries of a "
        "key, for which `key` has to be given.",
        "start.value": "Unix time in milliseconds, or how many entries.",
        "end": "Of `snapshot`: look below this seq; nil: below the newest.",
        "patterns": "What the asker reads of the keys of the span: a token may allow only this. "
        "The answer is the same without patterns.",
        "> seq": "The seq: an inclusive start.",
        "> more": "Of `snapshot`: nothing was found from `seq` on; ask again with it as `end`.",
    },
    "layout": {
        "> weights": "Keys in their order.",
        "> weights[].key": "The weight is about the keys from this key on, below the next row's.",
        "> weights[].bytes": "About how many bytes of entries these keys have.",
    },
    "follow": {
        "keys": "The keys to follow, each with the next seq wanted; nil: follow a span.",
        "prefix": "Of a span: keys that begin with these bytes alone.",
        "start_key": "Of a span: keys from this key on.",
        "end_key": "Of a span: keys below it alone; nil: to the end of the range.",
        "from_seq": "Of a span: the next seq wanted.",
        "credit": "Bytes of PUSH frames that may be on their way and unread. 0: none before the "
        f"first CREDIT. More than {limits.follow_credit_bytes_max:,} count as so many.",
        "> page": "Entries in the order of seq, or per key in the order of seq.",
        "> page.next": "Of no use here; see `next`.",
        "> page.more": "Whether more entries are there already.",
        "> page.end_key": "Always nil here.",
        "> caught_up": "Whether the reader has had all entries that are there now, as far as the "
        "member knows. A member that is cut off from the others says false, and ends the follow "
        "with UNAVAILABLE and the reason `cut_off`: follow at another member.",
        "> staleness_ms": "What the push lacks was acknowledged in the last so many milliseconds "
        "before the push left, and the time that messages took between members; nil: the member "
        "cannot say.",
        "> next": "The next seq wanted, or for `keys` that of each key in the page: where the "
        "client goes on when it follows again.",
        "> end_key": "Only in the first push: the pushes are about the keys below it alone. "
        "Follow the others by themselves from the same `from_seq`.",
    },
    "metadata": {
        "> keys": "Only for a client that may not use every key of the log: the spans of its keys. "
        "Ranges without such a key are missing then, and the bounds of the others are no wider "
        "than those spans.",
        "> keys[].start": "The first key of the span.",
        "> keys[].end": "The first key behind the span; nil: it has no end.",
        "log": "The log whose ranges are wanted; nil: a page of the logs.",
        "start_key": "With `log`: the first range of the page is the one that has this key.",
        "after": "Without `log`: the `next` of the page before; 0: the first page.",
        "nodes": "Whether the answer is to have the nodes.",
        "> version": "The version of the metadata. It grows with each change. A client never goes "
        "back to an older one; see Metadata.",
        "> nodes": "The nodes of the cluster, those that were removed included.",
        "> nodes[].id": "The id of the node.",
        "> nodes[].address": "`host:port` where the node listens for clients.",
        "> nodes[].http": "`host:port` where the node listens for HTTP; empty: nowhere.",
        "> nodes[].zone": "The zone that the operator gave the node.",
        "> nodes[].state": "`JOINING`, `ACTIVE`, `DRAINING`, `DEAD` or `REMOVED`. Ask no node "
        "that was removed.",
        "> nodes[].replicas": "Without `log`: how many replicas the node has.",
        "> logs": "With `log`: that log. Without: logs that the client may see, by id.",
        "> logs[].id": "The id of the log. A log that is created again has another one.",
        "> logs[].name": "The name of the log.",
        "> ranges": "With `log`: its ranges in the order of keys, without gaps.",
        **_DESCRIPTORS,
        "> next_key": "With `log`: the `start_key` of the next page; nil: the last page.",
        "> next": "Without `log`: the `after` of the next page; nil: the last page.",
    },
    "ranges": {
        "range": "The only range wanted; nil: a page of all ranges.",
        "> version": "The version of the metadata.",
        "> ranges": "The ranges, by id.",
        **_DESCRIPTORS,
        "> next": "The `after` of the next page; nil: the last page. A page may be empty and have "
        "a `next`.",
    },
    "status": {
        "after": "The `next` of the page before; nil: the first page.",
        "after.section": "The number of the section.",
        "after.position": "Where in the section the page begins.",
        "> cluster": "In the first page: id, version, and members and leader of the controller.",
        "> nodes": "In the first page: the nodes.",
        "> disk": "In the first page: free bytes of this node's disk, and its reserve.",
        "> descriptors": "In the first page: file descriptors of this node.",
        "> budgets": "In the first page: memory that clients of this node hold.",
        "> logs": "The logs, with their policies.",
        "> ranges": "The ranges, with sizes and rates.",
        "> operations": "The operations that change ranges.",
        "> replicas": "The replicas of this node.",
        "> segments_in_doubt": "Files of this node that are read again.",
        "> damaged": "Replicas that found damage.",
        "> kafka": "Numbers of the port for Kafka clients of this node, if there is one.",
        "> consumer_groups": "Numbers of the consumer groups that this node serves.",
        "> tier": "In the first page, if the node has a tier: what waits for the tier, and how the "
        "last request to its store ended.",
        "> next": "The `after` of the next page; nil: the last page.",
        "> next.section": "The number of the section.",
        "> next.position": "Where in the section the next page begins.",
    },
    "health": {
        "nodes": "How many nodes have to be ACTIVE.",
        "> ok": "Whether all is as it should be.",
        "> reasons": "Why it is not, for people.",
        "> next": "What an operator does next about the worst of these, in one line. Earlier "
        "versions do not send it.",
    },
    "producer_open": {
        "name": "The name of the producer; nil: anonymous.",
        "> id": "The id of the producer, or the first of a block.",
        "> epoch": "The epoch of the producer, for `epoch` of its batches.",
        "> count": "How many ids the block has.",
        "> grant": "Proves that this principal has opened the ids; nil on a cluster "
        "without tokens.",
    },
    "producers": _PRODUCER_ROWS,
    "producer_delete": {
        "name": "The name of the producer.",
        "> id": "The id that the name had.",
        "> epoch": "The epoch of its last opening.",
    },
    "range_transfer": {
        "range": "The id of the range; 0: the controller.",
        "node": "The member that is to lead.",
        "> leader": "The node that leads now.",
        "> changed": "False: it led already.",
    },
    "range_move": {
        "to": "The node that gets a replica.",
        "> members": "The members of that generation.",
        **_PLANNED,
    },
    "range_split": {
        "at": "The first key of the upper range.",
        "> range": "The range that keeps the lower keys.",
        "> new_range": "The range that gets the upper keys.",
        **_PLANNED,
    },
    "range_merge": {
        "at": "The first key of the upper range.",
        "> range": "The range that gets all keys.",
        "> gone_range": "The range that ends.",
        **_PLANNED,
    },
    "range_recovery": {
        "> log": "The name of the log.",
        "> start": "The first key of the range.",
        "> end": "The end of the range; nil: the end of all keys.",
        "> operation": "The operation that changes the range; 0: none.",
        "> members": "The members of the range.",
        "> members[].node": "The id of the node.",
        "> members[].state": "The state of the node.",
        "> members[].answers": "Whether the node answers.",
        "> members[].damaged": "Why the replica takes no part; nil: it is sound.",
        "> members[].last_term": "The term of the last entry of its log; nil: unknown.",
        "> members[].last_index": "The index of that entry.",
        "> members[].applied": "The index of the last entry that it has applied.",
        "> members[].last_seq": "The last seq that it has.",
        "> members[].last_timestamp_ms": "The timestamp of the last record.",
        "> proposed": "The node to recover from; nil: no member will do.",
        "> refused": "Why a recovery would be refused; nil: it would not.",
    },
    "range_recover": {
        "from": "The member to recover from.",
        "accept_loss": "Has to be true: acknowledged entries may be lost.",
        **_PLANNED,
    },
    "node_drain": {
        "node": "The node.",
        "undo": "Make the node ACTIVE again.",
        **_NODE_STATE,
    },
    "node_remove": {
        "node": "The node.",
        "dead": "The node is DEAD and never comes back.",
        **_NODE_STATE,
    },
    "node_rekey": {
        "node": "The node.",
        "key": "SHA-256 of the public key of the certificate, in hexadecimal.",
        **_NODE_STATE,
    },
    "finalize": {
        "level": "The level to raise the cluster to; nil: the highest that all programs know.",
        "> level": "The level of the cluster.",
    },
    "token_create": {
        "id": "The id: the text of the token before its dot.",
        "certificate": "`client NAME`, `name COMMON-NAME` or `key FINGERPRINT`.",
        "scopes[].log": "The name of a log, or a begin of names and `*`.",
        "scopes[].keys": "A key, or a begin of keys and `*`.",
        "patterns": "More scopes, whose keys are a pattern of the levels of a log's hierarchy. "
        "`scopes` and `patterns` have 1 to 16 elements together.",
        "patterns[].log": "The name of a log, or a begin of names and `*`.",
        "patterns[].keys": "A pattern that excludes nothing. The scope allows nothing in a log "
        "without a hierarchy.",
        "scram": "Keys of the text of the token, whose salt is the `id`, with 4,096 iterations: "
        "the stored key and the server key of SCRAM-SHA-256, then both of SCRAM-SHA-512. Needs "
        "feature level 6, and a `digest`. Missing: the token cannot be proven.",
        "> id": "The id of the token.",
        "> patterns": "The number of scopes with a pattern that the token has. Missing: none; an "
        "earlier version has left them out.",
        "> scram": "The token has keys for SCRAM. Missing: no; an earlier version has left "
        "them out.",
    },
    "token_list": {
        "after": "The `next` of the page before; nil: the first page.",
        "> next": "The `after` of the next page; nil: there are no more.",
        "> tokens": "The tokens, by id.",
        "> tokens[].id": "The id of the token.",
        "> tokens[].certificate": "The holder of the certificate; empty: it is a token.",
        "> tokens[].scopes[].log": "The name of a log, or a begin of names and `*`.",
        "> tokens[].scopes[].keys": "A key, or a begin of keys and `*`.",
        "> tokens[].scram": "The token has keys for SCRAM. Missing: no.",
        "> tokens[].patterns": "More scopes, whose keys are a pattern.",
        "> tokens[].patterns[].log": "The name of a log, or a begin of names and `*`.",
        "> tokens[].patterns[].keys": "A pattern of the levels of a log's hierarchy.",
    },
    "token_revoke": {"id": "The id of the token."},
    "quota_set": {
        "name": "The class of principals, or the tenant with its `/`.",
        "limits": "What to limit: `append_bytes`, `append_records`, `read_bytes`, `read_records`, "
        "`requests`, `cpu_ms` per second and node; `connections`, `follows`, `producers`, `logs`, "
        "`stored_bytes`. nil takes a limit away.",
        "> name": "The name of the quota.",
        "> limits": "All limits of the quota.",
    },
    "quota_delete": {"name": "The name of the quota."},
    "quota_list": {
        "> quotas": "The quotas, by name.",
        "> quotas[].name": "The name of the quota.",
        "> quotas[].limits": "All limits of the quota.",
    },
    "node_report": {
        "part": "`storage`, `settings` or `connections`.",
        "offset": "How many rows to leave out.",
        "> node": "The id of the answering node.",
        "> facts": "Numbers of the node that are not in rows.",
        "> rows": "Replicas, settings, or connections.",
        "> total": "The number of all rows.",
    },
    "usage": {
        "> since_ms": "When the node started, in Unix time. All counters began at 0 then.",
        "> tenants": "What was used of the logs of each tenant.",
        "> tenants[].name": "The tenant: the first part of the names of its logs, with the `/`.",
        "> principals": "What the principals have used that used most.",
        "> principals[].name": "The name of the principal.",
    },
    "node_invite": {
        "id": "The id of the invitation: 16 hexadecimal digits.",
        "digest": "SHA-256 of `ID.SECRET`.",
        "expires_ms": "When the invitation ends, in Unix time: in 7 days at most.",
        "> ca": "The key of the authority of the nodes' certificates, or `none`.",
    },
    "node_invites": {
        "> invites": "The invitations, the oldest first.",
        "> invites[].id": "The id of the invitation.",
        "> invites[].by": "The principal that made the invitation.",
    },
    "node_uninvite": {"id": "The id of the invitation."},
    **PEERS,
}
"""Meanings by operation and path."""


ERRORS: Final[Mapping[str, str]] = {
    "ERROR": "Something else went wrong, a bug of the node for example.",
    "INVALID_ARGUMENT": "A field of the request is wrong. Nothing was done.",
    "LIMIT_EXCEEDED": "A size or a count is above its limit.",
    "BATCH_SPANS_RANGES": "The keys of an atomic batch lie in several ranges. No node sends it.",
    "NOT_FOUND": "A named thing does not exist, or a lease has ended.",
    "LOG_NOT_FOUND": "No log has that name, as far as this node knows.",
    "RANGE_NOT_FOUND": "This node does not know the range.",
    "NODE_NOT_FOUND": "The node does not exist, has no replica of the range, or is not this one.",
    "CONFLICT": "The state of what was named refuses the operation.",
    "LOG_EXISTS": "A log has that name already.",
    "SEQUENCE_MISMATCH": "The condition of a record did not hold. Nothing of the batch was "
    "appended.",
    "FENCED": "The producer or the cursor was opened again later. Batches of this epoch, and "
    "commits of this holder, are refused for ever.",
    "OPERATION_IN_PROGRESS": "Another operation changes the range.",
    "ROUTING": "The request went to the wrong place. Nothing was done.",
    "NOT_LEADER": "The node does not lead the range, or its replica is damaged. Nothing was done.",
    "GENERATION_MISMATCH": "The node serves another generation of these keys, or a key is outside "
    "of the range. Nothing was done.",
    "SEALED": "The generation has ended, and its successor begins in a moment. Nothing was done.",
    "OUT_OF_ORDER": "A predecessor of a record, as `prevs` has it, has not arrived. Nothing of "
    "the batch was appended.",
    "OVERLOADED": "A queue or a disk is full, or a quota is used up. Nothing was done.",
    "UNAVAILABLE": "No leader, no majority, or the connection ends.",
    "TIMEOUT": "The time of the request has passed.",
    "CORRUPT_DATA": "A checksum or a structure did not hold: of a file of the node, or of a batch "
    "that the client has sent.",
    "UNAUTHORIZED": "Missing or wrong credentials, a permission that is missing, or another "
    "cluster.",
    "UNSUPPORTED": "An operation or a version that the node does not know.",
    "PROTOCOL_ERROR": "Bytes that are not the protocol.",
    "LOCAL_PROTOCOL_ERROR": "The client was about to break the protocol. No node sends it.",
    "REMOTE_PROTOCOL_ERROR": "The client broke the protocol, or does not speak TLS.",
    "PARTIAL_FAILURE": "Some records of a call were appended. No node sends it.",
}
"""What each code of an error means."""
ERROR_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "INVALID_ARGUMENT": {"what": "text: the field or the option that is wrong."},
    "LIMIT_EXCEEDED": {
        "limit": "text: the name of the limit.",
        "value": "an integer: what was given.",
        "allowed": "an integer: the limit.",
    },
    "NOT_FOUND": {
        "quota": "text: the name of a quota that does not exist.",
        "cursor": "text: the name of a cursor that does not exist.",
        "group": "text: the name of a consumer group that does not exist.",
        "view": "text: the name of a view that does not exist.",
    },
    "LOG_NOT_FOUND": {
        "log": "text: the name of the log.",
        "id": "an integer: where the request named an id, the log that has the name now.",
    },
    "RANGE_NOT_FOUND": {"range": "an integer: the id of the range."},
    "NODE_NOT_FOUND": {"node": "an integer: the id of the node."},
    "CONFLICT": {
        "node": "an integer: the node that the conflict is about.",
        "group": "text: the name of a consumer group that exists with other options.",
        "view": "text: the name of a view that exists with other options.",
        "reason": "text: `overtaken` of a request whose `since` is too old.",
        "newer": "an integer: the `since` to send in place of it.",
    },
    "LOG_EXISTS": {"log": "text: the name of the log."},
    "SEQUENCE_MISMATCH": {
        "key": "bytes: the key whose condition did not hold.",
        "expected": "an integer: the condition.",
        "actual": "an integer: the last seq of the key; 0: the key has no entry.",
    },
    "FENCED": {
        "epoch": "an integer: the epoch of the newest opening that the range knows.",
        "cursor": "text: the name of the cursor that another reader has opened.",
        "holder": "an integer: the number of that reader.",
        "key": "bytes: the key that the consumer no longer has. No node sends it.",
    },
    "OPERATION_IN_PROGRESS": {
        "range": "an integer: the id of the range.",
        "operation": "an integer: the operation that has to end first.",
    },
    "NOT_LEADER": {"hint": "an integer: the node that leads; nil: unknown."},
    "GENERATION_MISMATCH": {
        "ranges": "an array of descriptors, as `ranges` of `metadata` has them: what the node "
        "knows of the keys. It may be empty.",
    },
    "OUT_OF_ORDER": {
        "number": "an integer: the number that the range has not seen.",
        "producer_known": "false: the range knows no record of the producer.",
    },
    "OVERLOADED": {
        "retry_after": "a number: seconds after which the request may be sent again.",
        "quota": "text: the limit of `quota_set` that is used up; missing: another reason.",
        "reason": "text: `disk` where the disk is full, `follows` where there are too many.",
    },
    "UNAVAILABLE": {
        "reason": "text: `idle`, `unread` or `slow` of a connection that is ended; `stopping` of a "
        "node that stops; `behind` of a replica or node that does not know enough yet, `mending` "
        "of a replica that is repaired, `starting` of a node that knows no tokens yet, `cut_off` "
        "of a member that hears too few others, `lease` of a node that must not believe tokens any "
        "more; of `lognode serve-tier`, `tier`: the store gives no answer, `gone`: a file left the "
        "tier, `stale`: the manifests are too old. Others, and none: no leader could be reached.",
        "retry_after": "a number: seconds after which the same read may succeed, where known.",
        "key": "bytes: the key that the consumer has lost. No node sends it.",
    },
    "CORRUPT_DATA": {"segment": "text: the content id of the damaged file."},
    "UNAUTHORIZED": {
        "peer": "text: where nodes have to dial.",
        "reason": "text: of a node that joins, why it may not.",
        "registered": "an integer: of a node that joins, the node that has its key.",
    },
}
"""By the code of an error: its fields, with type and meaning. Each of them may be missing."""


def meaning(operation: str, path: str, *, answer: bool) -> str:
    """Return what a field means. Raises KeyError for a field without a meaning."""
    side = "> " if answer else ""
    own = OWN.get(operation, {})
    if side + path in own:
        return own[side + path]
    last = path.rpartition(".")[2].rstrip("[]{}")
    for shared in (PEERS_SHARED, SHARED) if operation in PEERS else (SHARED,):
        for name in (side + last, last):
            if name in shared:
                return shared[name]
    raise KeyError(f"{operation}: {side}{path}")
