"""A budget of bytes in three levels: a node, its principals, and their connections. No I/O.

The node takes n bytes from the account of a connection before it allocates them, and returns them
when the memory is free again. The bytes count at all three levels:

    a connection   holds at most `connection_bytes`
    a principal    holds at most `principal_bytes`; the last quarter of them is a reserve for
                   connections that hold little
    the node       holds at most `node_bytes`; the last quarter of them is a reserve for
                   principals that hold little

To hold little is to hold at most `floor_bytes`, including the requested bytes. So a principal that
holds nothing finds room even when others have filled the rest, and so does a connection among those
of its principal.

A request without room waits. A connection is served in the order of its tickets; the connections of
a principal, and the principals of a node, are served in turn. Nobody overtakes: while the first of
a queue waits for room at a level, nobody behind it takes that room, so a large ticket is served
despite a stream of small ones. Members that may use the reserve have a separate queue, served
first: members of the second queue already hold something.

Small allocations without a request (an error, the answer to a ping) are charged: they count and may
bring a level above its limit. The level then grants nothing until it is below the limit again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..protocol.invariants import InvariantError

_RESERVE_SHARE = 4


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The bytes that each level may hold. Taking more than `floor_bytes` at
    once counts as `floor_bytes`."""

    node_bytes: int
    principal_bytes: int
    connection_bytes: int
    floor_bytes: int

    def __post_init__(self) -> None:
        """Raise ValueError for limits under which a ticket could wait for ever."""
        if not (
            0 < self.floor_bytes <= self.connection_bytes
            and self.floor_bytes <= min(self.principal_bytes, self.node_bytes) // _RESERVE_SHARE
        ):
            raise ValueError(f"{self}: a reserve or a connection has less than floor_bytes")


class _Waiting(Protocol):
    """A member of a level that may wait for room: its first ticket wants `wants` bytes."""

    @property
    def held(self) -> int: ...
    @property
    def wants(self) -> int: ...


M = TypeVar("M", bound=_Waiting)


class _Level(Generic[M]):
    """The bytes that the members of a level hold together, and the queues of waiting members."""

    __slots__ = ("_floor", "_lines", "_shared", "held", "limit")

    def __init__(self, limit: int, floor: int) -> None:
        self.held = 0
        self.limit = limit
        self._floor = floor
        self._shared = limit - limit // _RESERVE_SHARE
        self._lines: tuple[OrderedDict[M, None], OrderedDict[M, None]] = (
            OrderedDict(), OrderedDict(),
        )  # fmt: skip

    @property
    def is_tight(self) -> bool:
        """Whether at most the reserve is left."""
        return self.held >= self._shared

    def admits(self, held: int, wants: int) -> bool:
        """Return whether there is room for a member with these held and wanted bytes, ignoring
        the queues."""
        if held + wants <= self._floor:
            return self.held + wants <= self.limit
        return self.held + wants <= self._shared

    def is_free_for(self, held: int, wants: int) -> bool:
        """Return whether a newcomer may take the bytes: there is room, and nobody waits before
        it."""
        first, second = self._lines
        if first or (second and held + wants > self._floor):
            return False
        return self.admits(held, wants)

    def stand(self, member: M) -> None:
        """Queue the member, in the queue for its bytes; a queued member keeps its place."""
        mine = 0 if member.held + member.wants <= self._floor else 1
        self._lines[1 - mine].pop(member, None)
        self._lines[mine].setdefault(member)

    def leave(self, member: M) -> None:
        """Remove the member from the queues."""
        self._lines[0].pop(member, None)
        self._lines[1].pop(member, None)

    def waiting(self) -> Iterator[M]:
        """Yield the members that wait for room here."""
        yield from self._lines[0]
        yield from self._lines[1]

    def next(self) -> M | None:
        """Return the member to serve now, or None while the first of each queue finds no room."""
        for line in self._lines:
            if line:
                member = next(iter(line))
                if self.admits(member.held, member.wants):
                    return member
        return None


class Ticket:
    """A place in the queue of a connection. `on_room` is called once, when `size` was taken."""

    __slots__ = ("on_room", "since", "size")

    def __init__(self, size: int, since: float, on_room: Callable[[], None]) -> None:
        self.size = size
        self.since = since
        self.on_room = on_room


class Principal:
    """All connections of one principal."""

    __slots__ = ("_budget", "accounts", "level", "name", "wants")

    def __init__(self, budget: "Budget", name: str) -> None:
        limits = budget.limits
        self.name = name
        self.wants = 0
        self.accounts: set[Account] = set()
        self.level: _Level[Account] = _Level(limits.principal_bytes, limits.floor_bytes)
        self._budget = budget

    @property
    def held(self) -> int:
        """Bytes of all its connections."""
        return self.level.held

    @property
    def waits_since(self) -> float:
        """The time since which a connection waits for room of this principal or of the node;
        infinity for none."""
        return min((each.waits_since for each in self.level.waiting()), default=inf)

    def changed(self) -> None:
        """Update the queues after a change of the held bytes or of the next connection."""
        first = self.level.next()
        if first is None:
            self._budget.level.leave(self)
        else:
            self.wants = first.wants
            self._budget.level.stand(self)


class Account:
    """The bytes that one connection holds. Made by `Budget.open`; `close` returns all bytes."""

    __slots__ = ("_budget", "_tickets", "closed", "held", "principal", "wants")

    def __init__(self, budget: "Budget", principal: Principal) -> None:
        self.held = 0
        self.wants = 0
        self.closed = False
        self.principal = principal
        self._budget = budget
        self._tickets: OrderedDict[Ticket, None] = OrderedDict()

    @property
    def is_tight(self) -> bool:
        """Whether a connection that holds much should get no more for now, at any level."""
        budget = self._budget
        return (
            self.held >= budget.limits.connection_bytes
            or self.principal.level.is_tight
            or budget.level.is_tight
        )

    @property
    def waits_since(self) -> float:
        """The time at which its first ticket began to wait; infinity for none."""
        first = next(iter(self._tickets), None)
        return inf if first is None else first.since

    def counted(self, size: int) -> int:
        """Return the bytes that count for a request of `size` bytes."""
        return min(size, self._budget.limits.floor_bytes)

    def take(self, size: int) -> bool:
        """Take the bytes now; return False when there is no room or another member waits first."""
        limits, principal = self._budget.limits, self.principal
        size = self.counted(size)
        if (
            self._tickets
            or self.closed
            or self.held + size > limits.connection_bytes
            or not principal.level.is_free_for(self.held, size)
            or not self._budget.level.is_free_for(principal.held, size)
        ):
            return False
        self.charge(size)
        return True

    def wait(self, size: int, now: float, on_room: Callable[[], None]) -> Ticket:
        """Return a ticket for the bytes; `on_room` is called when this connection's turn has come
        and they are taken.

        `now` is the time of the ticket, in seconds. After `close` the ticket waits for ever.
        """
        ticket = Ticket(self.counted(size), now, on_room)
        if not self.closed:
            self._tickets[ticket] = None
            self._budget.tickets += 1
            self._changed()
            self._budget.serve()
        return ticket

    def cancel(self, ticket: Ticket) -> None:
        """Cancel a ticket. Granted bytes are not taken back."""
        if ticket in self._tickets:
            del self._tickets[ticket]
            self._budget.tickets -= 1
            self._changed()
            self._budget.serve()

    def charge(self, size: int) -> None:
        """Take the bytes even without room."""
        self._add(size)
        if self._budget.tickets:
            self._changed()

    def give_back(self, size: int) -> None:
        """Return bytes, and serve the waiting tickets."""
        self._add(-size)
        if self._budget.tickets:
            self._changed()
            self._budget.serve()

    def close(self) -> None:
        """Cancel all tickets and return all bytes: the connection has ended."""
        if self.closed:
            return
        self._budget.tickets -= len(self._tickets)
        self._tickets.clear()
        self.give_back(self.held)
        self._changed()
        self.closed = True
        self._budget._closed(self)

    def _add(self, size: int) -> None:
        if not self.closed:
            self.held += size
            self.principal.level.held += size
            self._budget.level.held += size

    def _changed(self) -> None:
        """Update the queues after a change of the held bytes or of the first ticket."""
        if self.closed:
            return
        first = next(iter(self._tickets), None)
        if first is None or self.held + first.size > self._budget.limits.connection_bytes:
            self.principal.level.leave(self)
        else:
            self.wants = first.size
            self.principal.level.stand(self)
        self.principal.changed()

    def _grant(self) -> Ticket:
        """Serve the first ticket; other connections come before the next ticket of this one."""
        ticket, _ = self._tickets.popitem(last=False)
        self._budget.tickets -= 1
        self._add(ticket.size)
        self.principal.level.leave(self)
        self._budget.level.leave(self.principal)
        self._changed()
        return ticket


class Pressed(NamedTuple):
    """The levels for whose room connections have waited too long."""

    node: bool
    principals: frozenset[Principal]

    def concerns(self, account: Account) -> bool:
        """Return whether others wait for the room that the account takes."""
        return self.node or account.principal in self.principals


class Budget:
    """The node's level, and its principals by name."""

    def __init__(self, limits: BudgetLimits) -> None:
        self.limits = limits
        self.level: _Level[Principal] = _Level(limits.node_bytes, limits.floor_bytes)
        self.principals: dict[str, Principal] = {}
        self.tickets = 0
        """The number of waiting tickets."""

    @property
    def held(self) -> int:
        """Bytes of all connections."""
        return self.level.held

    def largest(self) -> tuple[int, int]:
        """Return the bytes of the largest principal, and those of the largest connection."""
        principals = self.principals.values()
        return (
            max((each.held for each in principals), default=0),
            max((account.held for each in principals for account in each.accounts), default=0),
        )

    def open(self, name: str) -> Account:
        """Return the account of a new connection of the principal with that name."""
        principal = self.principals.get(name)
        if principal is None:
            principal = self.principals[name] = Principal(self, name)
        account = Account(self, principal)
        principal.accounts.add(account)
        return account

    def serve(self) -> None:
        """Grant tickets as long as there is room for the next."""
        granted: list[Ticket] = []
        while (principal := self.level.next()) is not None:
            account = principal.level.next()
            if account is None:
                raise InvariantError("a principal waits although none of its connections waits")
            granted.append(account._grant())
        for ticket in granted:
            ticket.on_room()

    def pressed(self, before: float) -> "Pressed":
        """Return the levels for whose room a connection has waited since before the time
        `before`."""
        if not self.tickets:
            return Pressed(False, frozenset())
        late = [each for each in self.principals.values() if each.waits_since < before]
        at_node = set(self.level.waiting())
        return Pressed(
            not at_node.isdisjoint(late), frozenset(each for each in late if each not in at_node)
        )

    def _closed(self, account: Account) -> None:
        principal = account.principal
        principal.accounts.remove(account)
        if not principal.accounts:
            del self.principals[principal.name]
