"""The checker of the cluster tests finds what it is there to find."""

from collections.abc import Callable

import pytest
from cluster_history import History, check
from cluster_load import Attempt, Told

from lognode.client.protocol.types import Entry


def entry(key: bytes, seq: int, value: bytes) -> Entry:
    return Entry(key, seq, 1_000, None, value)


def sound() -> tuple[History, Told]:
    """What two plain appends, two conditional ones, a refused and a lost one left."""
    told = Told(
        attempts=[
            Attempt(b"own-0", b"a", None, 1.0, 2.0, "ok", 1),
            Attempt(b"own-0", b"b", None, 3.0, 4.0, "ok", 2),
            Attempt(b"own-0", b"refused", None, 5.0, 6.0, "not_applied"),
            Attempt(b"own-0", b"lost", None, 7.0, 8.0, "unknown"),
            Attempt(b"register-0", b"0:x", 0, 1.0, 2.0, "ok", 3),
            Attempt(b"register-0", b"3:y", 3, 3.0, 4.0, "ok", 4),
            Attempt(b"removed-0", b"x", None, 1.0, 2.0, "ok", 10),
            Attempt(b"removed-0", b"y", None, 3.0, 4.0, "ok", 11),
            Attempt(b"removed-0", b"z", None, 5.0, 6.0, "ok", 12),
            Attempt(b"aged-0", b"p", None, 1.0, 2.0, "ok", 1),
            Attempt(b"aged-0", b"q", None, 3.0, 4.0, "ok", 2),
            Attempt(b"aged-0", b"r", None, 5.0, 6.0, "ok", 3),
        ],
        gone={b"removed-0": 11},
        maybe_gone={b"removed-0": 12},
        named_done={"import-0": 2},
        named_sent={"import-0": 3},
    )
    entries = {
        b"own-0": [entry(b"own-0", 1, b"a"), entry(b"own-0", 2, b"b")],
        b"register-0": [entry(b"register-0", 3, b"0:x"), entry(b"register-0", 4, b"3:y")],
        b"removed-0": [entry(b"removed-0", 11, b"y"), entry(b"removed-0", 12, b"z")],
        b"aged-0": [entry(b"aged-0", 2, b"q"), entry(b"aged-0", 3, b"r")],
        b"named-0-1": [entry(b"named-0-1", 5, b"1:")],
        b"named-0-2": [entry(b"named-0-2", 6, b"2:")],
    }
    return entries, told


def turn_round(entries: History, told: Told) -> None:
    """The second append got the lower seq."""
    told.attempts[0].seq, told.attempts[1].seq = 2, 1
    entries[b"own-0"] = [entry(b"own-0", 1, b"b"), entry(b"own-0", 2, b"a")]


BROKEN: dict[str, Callable[[History, Told], object]] = {
    "S2: b'own-0'": lambda entries, told: entries[b"own-0"].pop(0),
    "S3: b'own-0'": lambda entries, told: entries.update(
        {b"own-0": [entry(b"own-0", 7, b"a"), entry(b"own-0", 8, b"b")]}
    ),
    "S4: b'own-0' Attempt": turn_round,
    "S5: b'own-0'": lambda entries, told: entries[b"own-0"].append(entry(b"own-0", 9, b"phantom")),
    "S8: b'own-0'": lambda entries, told: entries[b"own-0"].append(entry(b"own-0", 9, b"b")),
    "S9: b'register-0'": lambda entries, told: entries[b"register-0"].pop(0),
    "S11: b'own-0'": lambda entries, told: entries[b"own-0"].append(entry(b"own-0", 9, b"refused")),
    "S2: import-0": lambda entries, told: entries.pop(b"named-0-1"),
    "S8: import-0": lambda entries, told: entries.update(
        {b"named-0-3": [entry(b"named-0-3", 9, b"2:")]}
    ),
    "S4: follow": lambda entries, told: told.followed.append({b"own-0": entries[b"own-0"][::-1]}),
    "S6: b'removed-0'": lambda entries, told: entries[b"removed-0"].insert(
        0, entry(b"removed-0", 10, b"x")
    ),
    "S2: b'removed-0'": lambda entries, told: entries[b"removed-0"].pop(),
    "S3: b'removed-0'": lambda entries, told: entries.update(
        {b"removed-0": [entry(b"removed-0", 13, b"z")]}
    ),
    "S2: b'aged-0'": lambda entries, told: entries[b"aged-0"].pop(),
    "S7: told": lambda entries, told: told.violations.append("S7: told"),
}


def test_a_sound_history_passes_with_and_without_what_is_unknown() -> None:
    entries, told = sound()
    check(entries, told)
    entries[b"own-0"].append(entry(b"own-0", 9, b"lost"))
    check(entries, told)
    del entries[b"removed-0"][0], entries[b"aged-0"][0]
    told.followed.append({b"removed-0": [entry(b"removed-0", 10, b"x"), *entries[b"removed-0"]]})
    check(entries, told)


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_history_is_named(what: str) -> None:
    entries, told = sound()
    BROKEN[what](entries, told)
    with pytest.raises(AssertionError) as caught:
        check(entries, told)
    assert what in str(caught.value)
