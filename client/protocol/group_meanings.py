"""What each field of the requests of consumer groups means; see `meanings`."""

from collections.abc import Mapping
from typing import Final

_GROUP: Final = {
    "group": "The id of the group, from `group_create` or `group_list`. NOT_FOUND: the group was "
    "deleted.",
}
_CONSUMER: Final = {
    "consumer": "The number of the consumer, which the consumer draws at random when it begins.",
}
_TOKENS: Final = "The token of the key's batch, from `group_take`."
_SPAN: Final = {
    **_GROUP,
    "prefix": "Only keys with this prefix.",
    "start_key": "Only keys from this one on.",
}
_PAGE: Final = {"> after": "The `after` of the next page; nil: this is the last page."}
_OPTIONS: Final = {
    "prefix": "The group reads the keys with this prefix; empty: all keys.",
    "patterns": "The group reads the keys that match these patterns; nil: without patterns.",
    "max_deliveries": "After this number of failed deliveries of an entry `on_dead` applies.",
    "on_dead": "`park`: the key stops until somebody decides. `dead_letter:` and the name of a "
    "log: the entry is copied to that log, and the key goes on.",
    "lease_ms": "How long a consumer has a key that it neither settles nor extends.",
    "begin": "`earliest`: with all entries. `latest`: with the entries from the creation on. "
    "`time`: with the entries of a time.",
    "waits": "Whether retention keeps entries that the group has not done.",
    "ordering": "`key`: a key is with at most one consumer at a time. `none`: each entry is a unit "
    "of its own, and what is said of a key below holds for each entry; a batch has one entry.",
}
_ROW: Final = {
    **_OPTIONS,
    "id": "The id of the group, which no other group ever gets.",
    "name": "The name of the group.",
    "begin_ms": "The group begins with the entries of this time; 0: with all entries.",
    "created_ms": "When the group was created, in Unix time.",
}
GROUPS: Final[Mapping[str, Mapping[str, str]]] = {
    "group_settle": {
        **_GROUP,
        **_CONSUMER,
        "acks": "Keys whose entries are done. A repetition is not refused.",
        "acks[].key": "The key.",
        "acks[].token": _TOKENS,
        "acks[].through": "The next seq wanted of the key: the last seq done, plus 1.",
        "releases": "Keys that the consumer gives back. Unless `error` is empty, this counts as a "
        "failed delivery of the next entry.",
        "releases[].key": "The key.",
        "releases[].token": _TOKENS,
        "releases[].delay_ms": "How long no consumer gets the key.",
        "releases[].error": "Why the consumer failed; empty: the consumer did not fail.",
        "rejects": "Keys whose next entry no consumer shall get again: the key is parked, or the "
        "entry becomes a dead letter.",
        "rejects[].key": "The key.",
        "rejects[].token": _TOKENS,
        "rejects[].error": "Why the consumer rejects the entry.",
        "extends": "Keys whose leases begin again.",
        "extends[].key": "The key.",
        "extends[].token": _TOKENS,
        "leave": "The consumer ends: it gives back all other keys of the range.",
        "patient": "Nobody waits for the answer: the leader may let acknowledgements gather, at "
        "most 50 ms from the last command on.",
        "> refused": "The keys that were refused, in any order.",
        "> refused[].key": "The key.",
        "> refused[].reason": "`lease`: the consumer does not have the key with this token. "
        "`position`: `through` is beyond the batch, or the key is elsewhere. `full`: the range "
        "has no room for another position; the lease stays.",
        "> refused[].position": "The next seq wanted of the key.",
        "> tokens": "With `ordering` `none`: the token of each refused row; otherwise empty.",
    },
    "group_append": {
        **_GROUP,
        **_CONSUMER,
        "acks": "Keys whose entries are done once the batch is appended, each once.",
        "acks[].key": "The key. It lies in the range, as all keys of the batch.",
        "acks[].token": _TOKENS,
        "acks[].first": "The seq of the first entry that is acknowledged. The request is refused "
        "when the key's position is above it.",
        "acks[].through": "The next seq wanted of the key: the last seq done, plus 1.",
        "batch": "A record batch, packed, with a producer and flag 2; see Record batches. A "
        "repetition has the same numbers.",
        "> result": "The result of the batch. FENCED with a `key`: the consumer does not have that "
        "key any more.",
        "> result.status": "`ok`: the batch is appended, and the keys are acknowledged. `error`: "
        "neither, unless the outcome of the error says otherwise.",
        "> result.first_seq": "All records are new: the seq of the first. The others follow one by "
        "one. Nil: see `seqs`.",
        "> result.seqs": "Without `first_seq`: the seq of each record. Nil: a duplicate whose seq "
        "is forgotten.",
        "> result.duplicates": "Positions of the records that an earlier request had appended: all "
        "or none.",
        "> result.timestamp_ms": "The timestamp of the new records.",
        "> result.refused": "Always nil: a condition that does not hold refuses the whole batch.",
        "> result.actual": "Always nil.",
        "> result.error": "With the status `error`: why; see Errors.",
        "> refused": "The keys that the consumer does not have any more, in any order.",
        "> refused[].key": "The key.",
        "> refused[].reason": "`lease`: the consumer does not have the key with this token. "
        "`position`: `through` is beyond the batch, or the key's position is above `first`.",
        "> refused[].position": "The next seq wanted of the key.",
        "> tokens": "With `ordering` `none`: the token of each refused row; otherwise empty.",
    },
    "group_decide": {
        **_GROUP,
        "retry": "Parked keys that go on with the entry at which they stopped.",
        "skip": "Keys that pass entries, parked or not.",
        "skip[].key": "The key.",
        "skip[].expected": "The position of the key: a key at another position is refused.",
        "skip[].through": "The next seq wanted.",
        "spans": "Spans of keys that get this position. Leases end, and positions of single keys "
        "in the spans go. The part outside of the range is left out.",
        "spans[].start": "The first key of the span.",
        "spans[].end": "The span has the keys below it; nil: to the end of all keys.",
        "spans[].to": "The next seq wanted. A seq behind the newest entry stands for the position "
        "behind the newest entry.",
        "keys": "Keys that get a position of their own, after the spans.",
        "keys[].key": "The key.",
        "keys[].to": "The next seq wanted.",
        "why": "A reason for people, which is remembered with a skip.",
        "> refused": "Keys that are not parked, or not at the expected position.",
        "> refused[].key": "The key.",
        "> refused[].position": "The next seq wanted of the key.",
    },
    "group_take": {
        **_GROUP,
        **_CONSUMER,
        "prefix": "The prefix of the keys of the group. A principal that may read only these keys "
        "needs it.",
        "count": "How many keys the consumer takes at most.",
        "bytes": "Bytes of entries after which the answer ends. A batch has one entry at least.",
        "wait_ms": "How long the leader waits for a key before it answers without a batch.",
        "fence": "The `fence` of the last answer; 0: the first request to this range. A leader "
        "with another fence gives no batch, hears no claim: ask with its fence and `holds`. If "
        "`holds` is empty, the leader gives batches whatever the fence is.",
        "holds": "All keys of the range that the consumer has. The leader keeps the claimed keys "
        "for the consumer, and gives its other keys back. Name no key whose lease may be over by "
        "the consumer's clock. Nil: nothing is claimed.",
        "holds[].key": "The key.",
        "holds[].token": _TOKENS,
        "seqs": "With `ordering` `none`: the seq of each entry that `holds` names; else empty.",
        "fences": "For each key of `holds` the fence of the last answer that gave the key, or that "
        "did not refuse the key when the consumer claimed it. Empty: only the fences in the tokens "
        "count, and a second change of leader ends the leases.",
        "> fence": "The number of the leader's leases. It changes with the leader and with a "
        "reset.",
        "> lease_ms": "How long a lease lasts, from the answer or from the last extension on.",
        "> refused": "Claimed keys that the consumer no longer has.",
        "> refused_seqs": "With `ordering` `none`: the seq of each refused entry; otherwise empty.",
        "> keys": "The keys that the consumer has now. With `ordering` `none` a key comes once for "
        "each entry.",
        "> tokens": "The token of each key. Each request that settles the batch names it.",
        "> deliveries": "Which delivery of the first entry of each key this is: 1, and one more "
        "after each failure.",
        "> counts": "How many of the entries each key has. The entries of a key follow one "
        "another, the oldest first.",
        "> seqs": "The seqs of the entries of all keys.",
        "> timestamps": "The timestamps of the entries, in Unix time in milliseconds.",
        "> values": "The values of the entries; nil: a tombstone.",
    },
    "group_lag": {
        **_SPAN,
        "> at_index": "The applied index at which the answer is exact.",
        "> entries": "Entries that are not done.",
        "> bytes": "Bytes of the keys and values of these entries.",
        "> oldest_ms": "The timestamp of the oldest of these entries; nil: there is none.",
        "> waiting": "Keys with such entries that no consumer has, and that are not parked.",
        "> in_flight": "Keys with such entries that a consumer has.",
        "> parked": "Keys that wait for a decision.",
        "> begun": "Whether the group has begun on all keys; entries of other keys do not count.",
        "> consumers": "Consumers that this leader knows.",
    },
    "group_keys": {
        **_SPAN,
        "key": "Only this key, whatever its state is; nil: the keys that `what` names.",
        "after": "The page begins behind this key; nil: with the first.",
        "after_seq": "The `after_seq` of the last page; 0: the first page.",
        "what": "`parked`: keys that wait for a decision. `in_flight`: keys that consumers have.",
        "> rows": "The keys in their order. With `ordering` `none` a key comes once an entry.",
        "> rows[].key": "The key.",
        "> rows[].position": "The next seq wanted of the key; 0: the group has not begun there.",
        "> rows[].deliveries": "Failed deliveries of the next entry.",
        "> rows[].consumer": "The consumer that has the key; 0: none.",
        "> rows[].parked": "Whether the key waits for a decision.",
        "> rows[].error": "The last error of a consumer. For a parked key of a group with dead "
        "letters the leader may say instead why the entry is not copied yet.",
        "> after_seq": "The `after_seq` of the next page.",
        **_PAGE,
    },
    "group_history": {
        **_SPAN,
        "after": "The `after` of the last page; 0: the first page.",
        "> decisions": "What was decided, the oldest first.",
        "> decisions[].at_ms": "When, by the clock of the range, in Unix time.",
        "> decisions[].what": "1: parked after too many failures. 2: rejected by a consumer. 3: "
        "retried. 4: skipped. 5: copied as a dead letter. 6: reset. 7: lost to retention.",
        "> decisions[].who": "The principal that decided; empty: the range itself.",
        "> decisions[].start": "The first key concerned.",
        "> decisions[].end": "The keys below it are concerned; nil: all keys from `start` on.",
        "> decisions[].begin": "The seqs from this one on are concerned.",
        "> decisions[].through": "The seqs below this one are concerned.",
        "> decisions[].why": "The error or the reason.",
        **_PAGE,
    },
    "group_create": {
        "log": "The log.",
        "name": "The name of the group, which is one of the log's names of groups.",
        **_OPTIONS,
        "begin_ms": "With `time`: the time.",
        **{f"> {path}": meaning for path, meaning in _ROW.items()},
        "> created": "Whether this request created the group.",
    },
    "group_delete": {
        "log": "The log.",
        "name": "The name of the group.",
        "id": "Only the group with this id; nil: whichever group has the name.",
        "> id": "The id of the group that was deleted.",
    },
    "group_list": {
        "log": "The log.",
        "name": "Only the group with this name; nil: all groups.",
        "> groups": "The groups in the order of their names.",
        **{f"> groups[].{path}": meaning for path, meaning in _ROW.items()},
    },
}
"""Meanings by operation and path, as in `meanings.OWN`."""
