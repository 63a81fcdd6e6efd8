"""Whether what a cluster holds agrees with what it answered, key by key and node by node."""

import asyncio
import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from cluster_load import AGED, NAMED, REGISTER, Attempt, Told

import lognode
from lognode.client.protocol.types import Entry

History = dict[bytes, list[Entry]]
_READS_AT_ONCE = 16


def read_all(
    servers: str,
    log_name: str,
    *,
    node: int | None = None,
    through: Mapping[bytes, int] = MappingProxyType({}),
    timeout_s: float = 30.0,
) -> History:
    """Every entry of the log by key; with `node`, from that node's own replicas.

    `through`: the seq per key that the node must have applied.
    """

    async def read() -> History:
        gate = asyncio.Semaphore(_READS_AT_ONCE)
        async with lognode.AsyncClient(servers, timeout=timeout_s) as client:
            log = client.log(log_name)

            async def one(key: bytes) -> None:
                async with gate:
                    at = through.get(key)
                    found[key] = [e async for e in log.scan(key, node=node, through=at)]

            found: History = {}
            await asyncio.gather(*map(one, through))
            keys = [key async for key in log.keys(node=node)]
            await asyncio.gather(*(one(key) for key in keys if key not in through))
            return {key: found[key] for key in keys}

    return asyncio.run(read())


def same_on(servers: str, log_name: str, nodes: Iterable[int]) -> History:
    """S3, L2: every node's own replicas hold the same entries. Returns them."""
    entries = read_all(servers, log_name)
    through = {key: found[-1].seq for key, found in entries.items()}
    for node in nodes:
        own = read_all(servers, log_name, node=node, through=through)
        assert list(own) == list(entries), f"node {node} has other keys"
        for key, found in entries.items():
            assert own[key] == found, f"node {node} differs at {key!r}"
    return entries


def check(entries: History, told: Told) -> None:
    """S1 to S5, S8, S9, S11: the entries agree with what was answered."""
    assert not told.violations, told.violations[:5]
    by_key: dict[bytes, list[Attempt]] = defaultdict(list)
    for attempt in told.attempts:
        by_key[attempt.key].append(attempt)
    for key, found in entries.items():
        values = [entry.value for entry in found]
        assert len(set(values)) == len(values), f"S8: {key!r} holds a value twice"
        seqs = [entry.seq for entry in found]
        assert seqs == sorted(set(seqs)), f"S4: {key!r} is not in the order of seq"
        if key.startswith(REGISTER):
            _check_register(key, found)
    aged = [found[0].seq for key, found in entries.items() if key.startswith(AGED)]
    for key, attempts in by_key.items():
        found = entries.get(key, [])
        kept = told.maybe_gone.get(key, 0)
        if key.startswith(AGED):  # of one range: retention has removed what is below a seq
            kept = min(aged, default=float("inf"))
        _check_answers(key, found, attempts, told.gone.get(key, 0), kept)
        _check_real_time(key, attempts)
    _check_named(entries, told)
    for followed in told.followed:
        for key, found in entries.items():
            kept = told.maybe_gone.get(key, 0)  # what is below one may have, and the other not
            left = [entry for entry in found if entry.seq >= kept]
            seen = [entry for entry in followed.get(key, ()) if entry.seq >= kept]
            assert left[: len(seen)] == seen, f"S4: follow of {key!r} differs"


def _check_answers(
    key: bytes, found: Sequence[Entry], attempts: Sequence[Attempt], gone: int, kept: float
) -> None:
    """What is below `gone` was removed, as was answered; what is not below `kept` was not."""
    by_seq = {entry.seq: entry.value for entry in found}
    values = set(by_seq.values())
    asked = {attempt.value for attempt in attempts}
    assert not found or found[0].seq >= gone, f"S6: {key!r} has what was removed below {gone}"
    if not key.startswith(NAMED):
        assert values <= asked, f"S5: {key!r} holds an entry that no client appended"
    for attempt in attempts:
        if attempt.outcome == "ok" and (kept == 0 or (attempt.seq or 0) >= kept):
            assert attempt.value in values, f"S2: {key!r} {attempt} is lost"
            if attempt.seq is not None:
                assert by_seq.get(attempt.seq) == attempt.value, f"S3: {key!r} {attempt} moved"
        elif attempt.outcome == "not_applied":
            assert attempt.value not in values, f"S11: {key!r} {attempt} was applied"


def _check_real_time(key: bytes, attempts: Sequence[Attempt]) -> None:
    """S4: an append that began after another's acknowledgement has the higher seq."""
    known = [a for a in attempts if a.outcome == "ok" and a.seq is not None]
    ended: list[tuple[float, int]] = []
    highest = 0
    for attempt in sorted(known, key=lambda a: a.began):
        while ended and ended[0][0] < attempt.began:
            highest = max(highest, heapq.heappop(ended)[1])
        seq = attempt.seq or 0
        assert seq > highest, f"S4: {key!r} {attempt} is before {highest}"
        heapq.heappush(ended, (attempt.ended, seq))


def _check_register(key: bytes, found: Sequence[Entry]) -> None:
    """S9: every entry is right behind the one that its append expected to be the last."""
    last = 0
    for entry in found:
        expected = int((entry.value or b"").split(b":", 1)[0])
        assert expected == last, f"S9: {key!r} seq {entry.seq} expected {expected}, not {last}"
        last = entry.seq


def _check_named(entries: History, told: Told) -> None:
    """S8: every number up to the last acknowledged is there once, in order per key."""
    for name, done in told.named_done.items():
        prefix = NAMED + b"-" + name.rpartition("-")[2].encode() + b"-"
        numbers: list[int] = []
        for key, found in entries.items():
            if key.startswith(prefix):
                own = [int((entry.value or b"").split(b":", 1)[0]) for entry in found]
                assert own == sorted(own), f"S4: {key!r} holds its numbers out of order"
                numbers += own
        assert len(set(numbers)) == len(numbers), f"S8: {name} has a number twice"
        missing = set(range(1, done + 1)) - set(numbers)
        assert not missing, f"S2: {name} lacks {sorted(missing)[:5]}"
        assert max(numbers, default=0) <= told.named_sent[name], f"S5: {name} has too much"
