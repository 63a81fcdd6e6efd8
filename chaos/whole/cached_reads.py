"""What reads of a log must say, and what they said: judged when the last state is known.

An answer may have an entry that was not acknowledged, if the entry stayed. It has each entry that
was acknowledged before the read began, unless the entry was to be removed.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from ...client.protocol.errors import SequenceMismatch
from ..verdict import Anomaly

Entries = list[tuple[int, bytes | None]]
_TOLD: Final = 3


class Before(NamedTuple):
    """What was known of a key when a read began."""

    key: str
    acked: frozenset[int]
    gone: int


class _Said(NamedTuple):
    what: str
    before: Before
    entries: Entries
    asked: int
    """Below which seq entries were asked to go when the read ended."""


class Reads:
    """All reads of a log. `removes`: whether retention removes the oldest entries."""

    def __init__(self, *, removes: bool) -> None:
        self.anomalies: list[Anomaly] = []
        self.acked: defaultdict[str, dict[int, bytes]] = defaultdict(dict)
        """Acknowledged entries by key and seq."""
        self._removes = removes
        self._sent: defaultdict[str, set[bytes | None]] = defaultdict(set)
        self._asked: defaultdict[str, int] = defaultdict(int)
        """By key, below which seq entries were asked to go."""
        self._gone: defaultdict[str, int] = defaultdict(int)
        """By key, below which seq entries are gone for sure."""
        self._said: list[_Said] = []
        self._refused: list[tuple[str, int, str]] = []

    # What happens.

    def sends(self, key: str, value: bytes) -> None:
        """Note the value of an append that begins."""
        self._sent[key].add(value)

    def refuses(self, key: str, last: int, error: SequenceMismatch) -> None:
        """Note that the only writer of a key was told that `last` is not the newest entry."""
        self._refused.append((key, last, error.message))

    def asks_to_trim(self, key: str, before: int) -> None:
        """Note a trim that begins."""
        self._asked[key] = max(self._asked[key], before)

    def trimmed(self, key: str, before: int) -> None:
        """Note a trim that was acknowledged."""
        self._gone[key] = max(self._gone[key], before)

    def before(self, key: str) -> Before:
        """Return what is known of a key when a read begins."""
        return Before(key, frozenset(self.acked[key]), self._gone[key])

    def scan(self, before: Before, entries: Entries) -> None:
        """Note what a scan of the whole key said, oldest first."""
        self._said.append(_Said("scan", before, entries, self._asked[before.key]))

    def latest(self, before: Before, entries: Entries) -> None:
        """Note the newest entry that a read said; none for a key without entries."""
        newest = max(before.acked, default=0)
        if not self._removes and not entries and before.acked:
            told = f"{before.key} has entry {newest}, and a read says that the key has none"
            self.wrong("stale-read", told, "S7")
        elif entries and entries[0][0] < newest:
            told = f"{before.key} has entry {newest}, and a read says {entries[0][0]}"
            self.wrong("stale-read", told, "S7")
        self._said.append(_Said("latest", before, entries, self._asked[before.key]))

    def count(self, before: Before, count: int) -> None:
        """Note the number of entries that a read said."""
        asked, most = self._asked[before.key], len(self._sent[before.key])
        least = 0 if self._removes else sum(seq >= asked for seq in before.acked)
        if not least <= count <= most:
            told = f"{before.key} has {least} to {most} entries, and a count says {count}"
            self.wrong("wrong-count", told, "S7")

    # The judgement.

    def judge(self, final: Mapping[str, Entries]) -> None:
        """Compare the last state with what was acknowledged, and all reads with the last state."""
        for key, entries in final.items():
            self._judge_key(key, entries)
            self._judge_line(key, entries)
        for said in self._said:
            self._judge_read(said, dict(final[said.before.key]))
        self._said.clear()
        for key, last, message in self._refused:
            seqs = [seq for seq, _ in final[key]]
            if seqs and max(seqs) == max(last, 0):
                self.wrong("wrong-condition", f"{key} has nothing after {last}: {message}", "S9")
        self._refused.clear()

    def judge_node(self, node: int, key: str, final: Entries, entries: Entries) -> None:
        """Compare what one node says with what the leader said before: `final`.

        Retention, and a trim whose answer was lost, may have removed the oldest entries meanwhile.
        """
        gone = max(0, len(final) - len(entries))
        floor = self._asked[key] if not self._removes else 1 << 62
        if entries != final[gone:] or any(seq >= floor for seq, _ in final[:gone]):
            told = f"node {node} has {len(entries)} entries of {key}, the leader {len(final)}"
            self.wrong("nodes-differ", told, "S4")

    def _judge_key(self, key: str, entries: Entries) -> None:
        acked, now = self.acked[key], dict(entries)
        seqs = [seq for seq, _ in entries]
        if seqs != sorted(set(seqs)):
            self.wrong("wrong-order", f"{key} gives {seqs[:9]}...", "S3")
        floor = max(self._asked[key], min(now, default=1 << 62) if self._removes else 0)
        lost = sorted(seq for seq in acked if seq not in now and seq >= floor)
        if lost:
            self.wrong("lost-write", f"entries {lost[:_TOLD]} of {key} are gone", "S2")
        if back := [seq for seq in now if seq < self._gone[key]]:
            self.wrong("trimmed-entry", f"trimmed entries {back[:_TOLD]} of {key} are there", "S5")
        self._judge_values(key, entries, "the last read")

    def _judge_values(self, key: str, entries: Collection[tuple[int, bytes | None]],
                      who: str) -> None:  # fmt: skip
        acked, sent = self.acked[key], self._sent[key]
        for seq, value in entries:
            if value not in sent or acked.get(seq, value) != value:
                self.wrong("wrong-value", f"{who} gives entry {seq} of {key} another value", "S3")
                return

    def _judge_line(self, key: str, entries: Entries) -> None:
        """Each entry of a line names the entry before."""
        if not key.endswith("-line"):
            return
        for (before, _), (seq, value) in pairwise(entries):
            named = int((value or b"").split(b":")[1])
            if named != before:
                told = f"entry {seq} of {key} was appended after {named}, and follows {before}"
                self.wrong("wrong-condition", told, "S9")

    def _judge_read(self, said: _Said, now: Mapping[int, bytes | None]) -> None:
        key, has = said.before.key, dict(said.entries)
        who = f"a {said.what}"
        seqs = [seq for seq, _ in said.entries]
        if seqs != sorted(set(seqs)):
            self.wrong("wrong-order", f"{who} of {key} gives {seqs[:9]}...", "S3")
        self._judge_values(key, said.entries, who)
        floor = max(self._asked[key], min(now, default=1 << 62) if self._removes else 0)
        if strange := [seq for seq in has if seq >= floor and seq not in now]:
            self.wrong("strange-entry", f"{who} of {key} gives {strange[:_TOLD]}, now gone", "S2")
        if back := [seq for seq in has if seq < said.before.gone]:
            self.wrong("trimmed-entry", f"{who} of {key} gives trimmed {back[:_TOLD]}", "S5")
        if said.what != "scan" or self._removes:
            return
        end = max(seqs, default=0)
        needed = {seq for seq in now if seq < end} | said.before.acked
        if left_out := sorted(seq for seq in needed - has.keys() if seq >= said.asked):
            told = f"{who} of {key} leaves out {left_out[:_TOLD]} of {len(needed)} entries"
            self.wrong("stale-read", told, "S7")

    def wrong(self, name: str, told: str, promise: str | None = None) -> None:
        """Note an anomaly."""
        self.anomalies.append(Anomaly(name, f"log cached: {told}", promise=promise))
