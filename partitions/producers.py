"""Named producers: who has opened which name, and why forgetting a name is safe.

A name gives its holder an id and an epoch. Ranges remember record numbers by id, and refuse lower
epochs of an id (S8, S9). A name must therefore always give the same id, and each opening a higher
epoch than all earlier openings, even when the record of the name was forgotten in between. Neither
needs a record: the id is a keyed hash of the name, and the epoch comes from one counter of the
cluster. The record of a name only serves people (`lognode producer list`) and the bounds below.

Expiry therefore depends neither on a correct clock nor on messages from a live session. A session
whose name expired continues to append under its id. The next opening of the name gets the same id
and a higher epoch: the ranges fence the older session, and know the record numbers that it has
appended. A range forgets the numbers of any producer that was unused for 24 hours of the range's
log time. Names live longer than that, so that the list shows every name that a range may know.

A name that an older version opened has a small id, which its record holds. Such a record never
expires: without the record the name would get another id. `producer delete` removes it.

With authorisation, a name belongs to the principal that opened it first, and the hash is of both:
if another principal later gets the name, it gets another id. A name from before authorisation
belongs to the principal that opens it first, and keeps its id and its record. `grants` says what an
id is worth to other principals.

Ids of named producers begin at 2^62, above all ids of anonymous producers, which are counted from
1. The hash has 62 bits and a secret key of the cluster. Two of 100,000 names share an id with a
probability of 1e-9, and nobody outside the cluster can search for such names.
"""

import hashlib
from typing import Any, Final, NamedTuple, Protocol

from ..client.protocol import limits
from ..client.protocol.errors import InvalidArgument, LimitExceeded, NotFound, Unauthorized
from . import command_fields, grants
from .tables import Kind, Table

FIRST_NAMED_ID: Final = 1 << 62
KEY_BYTES: Final = grants.KEY_BYTES
BLOCK: Final = 1_024
"""The number of ids that one anonymous request reserves."""

Command = dict[str, Any]
Answer = dict[str, Any]


class Named(NamedTuple):
    """A producer's name that was opened."""

    number: int
    """The number of the name; it is used only to find the record."""
    name: str
    producer_id: int
    epoch: int
    """The epoch of the newest opening."""
    opened_ms: int
    """The time of the newest opening, by the wall clock of the controller's leader; 0 when
    unknown."""
    owner: str
    """The principal that owns the name; "" while clients have no names."""


def _write(_: Any, named: Named) -> Any:
    return list(named)


def _read(told: Any) -> tuple[int, Named]:
    named = Named(*told)
    return int(named.number), named


NAMED: Final = Kind("producers", _write, _read, is_public=False)
PRODUCER_IDS: Final = Kind(
    "producer_ids", lambda key, value: [key, value], lambda told: (str(told[0]), told[1]),
    is_numbered=False, is_public=False,
)  # fmt: skip
"""Counters: the next `anonymous` id, `epoch` and `number`; and the secret `key` of the hash."""


class Known(Protocol):
    """The state that the commands below change."""

    @property
    def producers(self) -> "Names": ...

    @property
    def producer_ids(self) -> Table[str, Any]: ...

    @property
    def has_auth(self) -> bool: ...

    producer_key: bytes


class Names(Protocol):
    """The records of names; see `records.Producers`."""

    name_bytes: int

    def named(self, name: str) -> Named | None: ...
    def of_owner(self, owner: str) -> tuple[int, int]: ...
    def get(self, number: int, /) -> Named | None: ...
    def __len__(self) -> int: ...
    def __setitem__(self, number: int, named: Named) -> None: ...
    def __delitem__(self, number: int) -> None: ...


def open_anonymous(state: Known, command: Command) -> Answer:
    """Reserve a block of ids that nobody else gets.

    The command has the fields of `open_named`, without the name. Raises InvalidArgument.
    """
    first = state.producer_ids["anonymous"]
    state.producer_ids["anonymous"] = first + BLOCK
    return _answer(state, command, first, BLOCK, 1)


def open_named(state: Known, command: Command) -> Answer:
    """Open a name.

    The command has the `name`, its `owner`, how many names the owner's quota has `allowed` (0: any
    number), the leader's clock `at_ms`, and a `key` of 16 random bytes. The first committed key is
    kept for ever.

    Raises InvalidArgument, LimitExceeded; Unauthorized for a name of another principal.
    """
    name, owner = _checked_name(command), command_fields.text(command, "owner")
    at_ms = command_fields.number(command, "at_ms")
    key = _drawn(command)
    known = state.producers.named(name)
    if known is None:
        _check_room(state, name, owner, command_fields.number(command, "allowed"))
        key = state.producer_ids.get("key", key)
        state.producer_ids["key"] = key
        known = Named(_next(state, "number"), name, _id_of(key, owner, name), 0, 0, owner)
    elif known.owner not in ("", owner):
        raise Unauthorized(
            f"producer name {name!r} belongs to {known.owner}; choose another name. An "
            "administrator can free the name with `lognode producer delete`"
        )
    opened = known._replace(epoch=_next(state, "epoch"), opened_ms=at_ms, owner=owner)
    state.producers[opened.number] = opened
    return _answer(state, command, opened.producer_id, 1, opened.epoch)


def delete(state: Known, command: Command) -> Answer:
    """Forget a name. Its next opening by its owner gets the same id and a higher epoch.

    Raises InvalidArgument, NotFound.
    """
    name = _checked_name(command)
    known = state.producers.named(name)
    if known is None:
        raise NotFound(
            f"producer name {name!r} does not exist; `lognode producer list` shows all names"
        )
    del state.producers[known.number]
    return {"id": known.producer_id, "epoch": known.epoch}


def expire(state: Known, command: Command) -> Answer:
    """Forget each name of the `numbers` that nobody has opened since `before_ms`."""
    before_ms = command_fields.number(command, "before_ms")
    expired = 0
    for number in command_fields.numbers(command, "numbers"):
        named = state.producers.get(number)
        if named is not None and is_expired(state, named, before_ms):
            del state.producers[number]
            expired += 1
    return {"expired": expired}


def is_expired(state: Known, named: Named, before_ms: int) -> bool:
    """Whether the name may be forgotten because nobody has opened it since that time.

    The same id has to follow from the name and its owner alone.
    """
    key = state.producer_ids.get("key")
    return (
        named.opened_ms < before_ms
        and key is not None
        and named.producer_id == _id_of(key, named.owner, named.name)
    )


def open_as_before(state: Known, name: str) -> Answer:
    """Open a name as older versions did: entries of their log are still applied."""
    known = state.producers.named(name)
    if known is None:
        anonymous = state.producer_ids["anonymous"]
        state.producer_ids["anonymous"] = anonymous + 1
        known = Named(_next(state, "number"), name, anonymous, 0, 0, "")
    opened = known._replace(epoch=known.epoch + 1)
    state.producers[opened.number] = opened
    state.producer_ids["epoch"] = max(state.producer_ids["epoch"], opened.epoch + 1)
    return {"id": opened.producer_id, "count": 1, "epoch": opened.epoch}


def _checked_name(command: Command) -> str:
    name = command.get("name")
    if not isinstance(name, str) or not 1 <= len(name.encode()) <= limits.producer_name_bytes_max:
        raise InvalidArgument(
            f"producer name {name!r} is not allowed; a name has 1 to "
            f"{limits.producer_name_bytes_max} bytes",
            what="name",
        )
    return name


def _check_room(state: Known, name: str, owner: str, quota: int) -> None:
    """Raise LimitExceeded if the owner, or the cluster, may have no further name."""
    size = len(name.encode())
    count, held = state.producers.of_owner(owner)
    for limit, value, allowed in (
        ("quota of producers", count + 1, quota or count + 1),
        ("producers_named_per_principal_max", count + 1, limits.producers_named_per_principal_max),
        ("producer_names_bytes_per_principal_max", held + size,
         limits.producer_names_bytes_per_principal_max),
        ("producers_named_max", len(state.producers) + 1, limits.producers_named_max),
        ("producer_names_bytes_max", state.producers.name_bytes + size,
         limits.producer_names_bytes_max),
    ):  # fmt: skip
        if value > allowed:
            raise LimitExceeded(
                f"{limit} would be {value}; the limit is {allowed}. Delete names that are "
                "not in use with `lognode producer delete`; a name that no client opens for "
                f"{limits.producer_name_expiry_ms // 86400000} days expires",
                limit=limit, value=value, allowed=allowed,
            )  # fmt: skip


def _answer(state: Known, command: Command, first: int, count: int, epoch: int) -> Answer:
    answer: Answer = {"id": first, "count": count, "epoch": epoch}
    if state.has_auth:
        state.producer_key = state.producer_key or _drawn(command)
        owner = command_fields.text(command, "owner")
        answer["grant"] = grants.grant(state.producer_key, first, count, owner)
    return answer


def _drawn(command: Command) -> bytes:
    key = command_fields.key(command, "key")
    if len(key) != KEY_BYTES:
        raise InvalidArgument(
            f"the key of the grants has {len(key)} bytes; the key must have {KEY_BYTES}", what="key"
        )
    return key


def _id_of(key: bytes, owner: str, name: str) -> int:
    told = f"{owner}\0{name}" if owner else name  # neither part contains control characters
    digest = hashlib.blake2b(told.encode(), digest_size=8, key=key).digest()
    return FIRST_NAMED_ID | int.from_bytes(digest, "big") >> 2


def own_id(told: str) -> int:
    """Return the id of a producer of the cluster itself, which no client gets: grants and names
    give other ids, except with a probability as above."""
    digest = hashlib.blake2b(told.encode(), digest_size=8).digest()
    return FIRST_NAMED_ID | int.from_bytes(digest, "big") >> 2


def _next(state: Known, counter: str) -> int:
    value: int = state.producer_ids[counter]
    state.producer_ids[counter] = value + 1
    return value
