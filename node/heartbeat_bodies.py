"""What a heartbeat and its answer hold, checked before anything is learnt of it.

Another node may be of another version, or not be what it says. Each field has its type and its
bounds; a reason is cut where it is longer than people read.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from ..client import checks, limits
from ..client.errors import InvalidArgument, RemoteProtocolError
from ..partitions.leads import LEAD_RESTS_S
from ..partitions.planner import Damage, Large
from ..partitions.shrinking import Small
from . import fields, leaders
from .leaders import Told

LARGE_FIELDS = 4
"""Fields of a range that travel: whether it is large or busy is said of all of them."""

T = TypeVar("T")
Body = dict[str, Any]
Wish = tuple[int, int, float]
"""A range, the node that an operator wants to lead it, and how many seconds ago."""


class Asked(NamedTuple):
    """What a node says of itself, and what it knows already."""

    generation: int
    version: int
    leaders: dict[int, Told]
    seen: tuple[int, ...]
    damaged: list[Damage]
    large: list[Large]
    busy: list[Large]
    small: list[Small]
    wishes: list[Wish]
    disk_free: int | None
    leads_left: int | None


class Answered(NamedTuple):
    """What the controller's leader says."""

    image: Any
    """None, or what `View.take` looks at."""
    leaders: dict[int, Told]
    seen: tuple[int, ...]
    damaged: dict[int, list[Damage]]
    short: dict[int, int]


def asked(body: Body) -> Asked:
    """Of a request. Raises InvalidArgument."""
    return Asked(
        generation=fields.integer(body, "generation"),
        version=fields.integer(body, "version"),
        leaders=leaders.from_wire(body.get("leaders")),
        seen=fields.integers(body, "seen", 3),
        damaged=fields.parsed("damaged", _damage, body.get("damaged", [])),
        large=fields.parsed("large", _large, body.get("large", [])),
        busy=fields.parsed("busy", _large, body.get("busy", [])),
        small=fields.parsed("small", _small, body.get("small", [])),
        wishes=fields.parsed("wishes", _wishes, body.get("wishes", [])),
        disk_free=fields.optional_integer(body, "disk_free"),
        leads_left=fields.optional_integer(body, "leads_left"),
    )


def answered(body: Body) -> Answered:
    """Of an answer. Raises RemoteProtocolError."""
    try:
        return Answered(
            image=body.get("image"),
            leaders=leaders.from_wire(body.get("leaders")),
            seen=fields.integers(body, "seen", 3),
            damaged=_by_node(body.get("damaged", {}), _told_damage),
            short=_by_node(body.get("short", {}), lambda free: checks.number(free, "short")),
        )
    except InvalidArgument as error:
        raise RemoteProtocolError(
            f"an answer to a heartbeat that is none: {error.message}"
        ) from None


def _by_node(told: Any, read: Callable[[Any], T]) -> dict[int, T]:
    if not isinstance(told, Mapping):
        raise fields.invalid("nodes")
    return {checks.number(node, "node"): read(each) for node, each in told.items()}


def _told_damage(told: Any) -> list[Damage]:
    return fields.parsed("damaged", _damage, told)


def _damage(told: Any) -> list[Damage]:
    if any(list(map(type, each)) != [int, int, str] for each in told):
        raise ValueError("damage that is none")
    return [
        (checks.number(range_id, "range"), checks.number(generation, "generation"),
         why[: limits.reason_chars_max])
        for range_id, generation, why in told
    ]  # fmt: skip


def _large(told: Any) -> list[Large]:
    if any(list(map(type, each)) != [int, int, int, bytes] for each in told):
        raise ValueError("a large range that is none")
    for *numbers, at in told:
        checks.numbers(numbers, "large", count_max=LARGE_FIELDS)
        checks.key(at, "at")
    return [Large(*each) for each in told]


def _wishes(told: Any) -> list[Wish]:
    found = [
        (checks.number(range_id, "wishes"), checks.number(node, "wishes"), float(ago_s))
        for range_id, node, ago_s in told
    ]
    if not all(0 <= ago_s <= LEAD_RESTS_S for _, _, ago_s in found):
        raise ValueError("wishes that are none")
    return found


def _small(told: Any) -> list[Small]:
    if any(list(map(type, each)) != [int] * len(Small._fields) for each in told):
        raise ValueError("a small range that is none")
    return [Small(*checks.numbers(each, "small", count_max=len(each))) for each in told]
