"""The budget of bytes against a model: never over, always given back, nobody starves."""

from collections import deque
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lognode.client.accepting.budget import Account, Budget, BudgetLimits, Ticket

NODE, PRINCIPAL, CONNECTION, FLOOR = 64, 32, 12, 8
LIMITS = BudgetLimits(
    node_bytes=NODE, principal_bytes=PRINCIPAL, connection_bytes=CONNECTION, floor_bytes=FLOOR
)


def nothing() -> None:
    """For tickets of which only the account is looked at."""


def full(budget: Budget, names: str, *, size: int = FLOOR) -> list[Account]:
    """Connections, one of each name, that take until there is no more."""
    accounts = []
    for name in names:
        account = budget.open(name)
        while account.take(size):
            pass
        accounts.append(account)
    return accounts


@pytest.mark.parametrize(
    "limits",
    [
        {"node_bytes": 64, "principal_bytes": 64, "connection_bytes": 8, "floor_bytes": 9},
        {"node_bytes": 64, "principal_bytes": 32, "connection_bytes": 9, "floor_bytes": 9},
        {"node_bytes": 32, "principal_bytes": 64, "connection_bytes": 9, "floor_bytes": 9},
        {"node_bytes": 64, "principal_bytes": 64, "connection_bytes": 8, "floor_bytes": 0},
    ],
)
def test_limits_under_which_a_ticket_could_wait_for_ever_are_refused(
    limits: dict[str, int],
) -> None:
    with pytest.raises(ValueError, match="floor_bytes"):
        BudgetLimits(**limits)


def test_a_connection_stops_at_its_own_limit() -> None:
    budget = Budget(LIMITS)
    (account,) = full(budget, "a", size=4)
    assert (account.held, budget.held) == (CONNECTION, CONNECTION)
    account.give_back(4)
    assert account.take(4)


def test_the_last_quarter_of_a_principal_is_for_connections_that_hold_little() -> None:
    budget = Budget(LIMITS)
    full(budget, "aa", size=6)
    late = budget.open("a")
    assert budget.held == 24
    assert late.take(FLOOR)  # from the reserve
    assert not late.take(1)
    assert budget.held == PRINCIPAL


def test_the_last_quarter_of_the_node_is_for_principals_that_hold_little() -> None:
    budget = Budget(LIMITS)
    full(budget, "aabb", size=6)
    hog = budget.open("a")
    assert budget.held == 48
    assert not hog.take(FLOOR)
    for name in "cd":
        assert budget.open(name).take(FLOOR)
    assert budget.held == NODE
    assert not budget.open("e").take(1)


def test_a_connection_is_served_in_the_order_of_its_tickets() -> None:
    budget = Budget(LIMITS)
    account = budget.open("a")
    assert account.take(CONNECTION - 4)
    served: list[str] = []
    account.wait(6, 0.0, lambda: served.append("large"))
    account.wait(1, 0.0, lambda: served.append("small"))
    assert not account.take(1)  # behind the others
    assert served == []
    account.give_back(2)
    assert served == ["large", "small"] or served == ["large"]
    account.give_back(6)
    assert served == ["large", "small"]


def test_connections_are_served_in_turn_however_many_tickets_one_has() -> None:
    budget = Budget(LIMITS)
    holder = budget.open("a")
    for _ in range(4):
        holder.charge(FLOOR)
    served: list[str] = []
    first, second = budget.open("a"), budget.open("a")
    for n in range(3):
        first.wait(4, 0.0, lambda n=n: served.append(f"first {n}"))  # type: ignore[misc]
    second.wait(4, 0.0, lambda: served.append("second"))
    assert served == []
    holder.give_back(FLOOR)
    assert served == ["first 0", "second"]


def test_a_large_ticket_is_not_overtaken_by_small_ones() -> None:
    budget = Budget(LIMITS)
    holders = full(budget, "abcdefgh")
    served: list[str] = []
    budget.open("x").wait(FLOOR, 0.0, lambda: served.append("large"))
    late = budget.open("y")
    holders[0].give_back(4)
    assert not late.take(4)  # there is room for it, and the large one was before
    late.wait(4, 0.0, lambda: served.append("small"))
    assert served == []
    holders[1].give_back(4)
    assert served == ["large"]
    holders[1].give_back(4)
    assert served == ["large", "small"]


def test_a_charge_above_the_limit_is_counted_and_stops_every_grant() -> None:
    budget = Budget(LIMITS)
    account = budget.open("a")
    account.charge(NODE + 5)
    assert budget.held == NODE + 5
    other = budget.open("b")
    served: list[str] = []
    other.wait(1, 0.0, lambda: served.append("b"))
    account.give_back(5)
    assert served == []
    account.give_back(1)
    assert served == ["b"]


def test_a_declared_size_above_the_largest_answer_counts_as_the_largest_answer() -> None:
    budget = Budget(LIMITS)
    account = budget.open("a")
    assert account.take(1000)
    assert account.held == FLOOR


def test_a_closed_connection_gives_everything_back_once() -> None:
    budget = Budget(LIMITS)
    account, other = budget.open("a"), budget.open("a")
    account.charge(PRINCIPAL)
    served: list[str] = []
    account.wait(1, 0.0, lambda: served.append("closed"))
    other.wait(FLOOR, 0.0, lambda: served.append("other"))
    account.close()
    account.close()
    account.give_back(PRINCIPAL)  # a task of it that ends later
    account.charge(3)
    assert served == ["other"]
    assert not account.take(1)
    assert (budget.held, budget.tickets) == (FLOOR, 0)
    other.close()
    assert (budget.held, budget.principals) == (0, {})


def test_a_cancelled_ticket_lets_those_behind_it_go_on() -> None:
    budget = Budget(LIMITS)
    holders = full(budget, "abcdefgh")
    served: list[str] = []
    first = budget.open("x")
    ticket = first.wait(FLOOR, 0.0, lambda: served.append("x"))
    budget.open("y").wait(2, 0.0, lambda: served.append("y"))
    holders[0].give_back(2)
    assert served == []
    first.cancel(ticket)
    first.cancel(ticket)
    assert served == ["y"]
    assert first.waits_since == inf


def test_tickets_are_as_old_as_they_were_told() -> None:
    budget = Budget(LIMITS)
    account = budget.open("a")
    account.charge(CONNECTION)
    account.wait(1, 7.0, nothing)
    account.wait(1, 8.0, nothing)
    assert account.waits_since == 7.0


def test_pressed_are_the_levels_whose_room_somebody_has_waited_for() -> None:
    budget = Budget(LIMITS)
    one, two = budget.open("a"), budget.open("b")
    one.charge(CONNECTION)
    one.wait(1, 1.0, nothing)  # it waits for itself: nobody is to blame
    assert not budget.pressed(2.0).concerns(one)
    one.charge(PRINCIPAL - CONNECTION)
    budget.open("a").wait(FLOOR, 1.0, nothing)
    assert not budget.pressed(1.0).concerns(one)
    assert budget.pressed(2.0).concerns(one)
    assert not budget.pressed(2.0).concerns(two)
    two.charge(NODE - PRINCIPAL)
    budget.open("c").wait(FLOOR, 3.0, nothing)
    assert not budget.pressed(3.0).concerns(two)
    assert budget.pressed(4.0).concerns(two)


def test_a_served_connection_may_take_and_give_back_at_once() -> None:
    budget = Budget(LIMITS)
    account = budget.open("a")
    account.charge(CONNECTION - 1)
    served: list[int] = []

    def again(n: int) -> Callable[[], None]:
        def on_room() -> None:
            served.append(n)
            account.give_back(4)
            if n < 50:
                account.wait(4, 0.0, again(n + 1))

        return on_room

    account.wait(4, 0.0, again(0))
    account.give_back(3)
    assert served == list(range(51))
    assert account.held == CONNECTION - 4


class Machine(RuleBasedStateMachine):
    """Connections of three principals take, wait, charge, give back and close, in any order.

    The model keeps what each connection has got in its own words; the budget is compared with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(LIMITS)
        self.accounts: list[Account] = []
        self.parts: dict[Account, list[int]] = {}
        """What a connection took, and has not given back."""
        self.lines: dict[Account, deque[tuple[int, Ticket]]] = {}
        """Tickets that wait, with their numbers."""
        self.charged = False
        """Whether something was taken without asking."""
        self.number = 0

    def some(self, at: int) -> Account:
        return self.accounts[at % len(self.accounts)]

    @rule(name=st.sampled_from("abc"))
    @precondition(lambda self: len(self.accounts) < 8)
    def open(self, name: str) -> None:
        account = self.budget.open(name)
        self.accounts.append(account)
        self.parts[account], self.lines[account] = [], deque()

    @rule(at=st.integers(0, 7), size=st.integers(0, FLOOR + 2))
    @precondition(lambda self: self.accounts)
    def take(self, at: int, size: int) -> None:
        account = self.some(at)
        before = account.held
        if account.take(size):
            assert not self.lines[account], "it overtook its own ticket"
            assert account.held == before + min(size, FLOOR)
            self.parts[account].append(min(size, FLOOR))
        else:
            assert account.held == before

    @rule(at=st.integers(0, 7), size=st.integers(1, FLOOR + 2))
    @precondition(lambda self: self.accounts)
    def wait(self, at: int, size: int) -> None:
        account = self.some(at)
        self.number += 1
        number = self.number

        def on_room() -> None:
            first, ticket = self.lines[account].popleft()
            assert first == number, "not in the order of the tickets"
            self.parts[account].append(ticket.size)

        line = self.lines[account]
        holder = Ticket(min(size, FLOOR), 0.0, nothing)
        line.append((number, holder))
        ticket = account.wait(size, 0.0, on_room)
        if line and line[-1][1] is holder:
            line[-1] = (number, ticket)

    @rule(at=st.integers(0, 7), size=st.integers(0, 2 * NODE))
    @precondition(lambda self: self.accounts)
    def charge(self, at: int, size: int) -> None:
        account = self.some(at)
        account.charge(size)
        self.parts[account].append(size)
        self.charged = True

    @rule(at=st.integers(0, 7), part=st.integers(0, 50))
    @precondition(lambda self: any(self.parts.values()))
    def give_back(self, at: int, part: int) -> None:
        holding = [account for account in self.accounts if self.parts[account]]
        account = holding[at % len(holding)]
        parts = self.parts[account]
        account.give_back(parts.pop(part % len(parts)))

    @rule(at=st.integers(0, 7), which=st.integers(0, 50))
    @precondition(lambda self: any(self.lines.values()))
    def cancel(self, at: int, which: int) -> None:
        waiting = [account for account in self.accounts if self.lines[account]]
        account = waiting[at % len(waiting)]
        line = self.lines[account]
        number = which % len(line)
        ticket = line[number][1]
        del line[number]
        account.cancel(ticket)

    @rule(at=st.integers(0, 7))
    @precondition(lambda self: self.accounts)
    def close(self, at: int) -> None:
        account = self.some(at)
        self.accounts.remove(account)
        self.parts[account], self.lines[account] = [], deque()
        account.close()

    @rule()
    @precondition(lambda self: self.accounts)
    def everybody_is_served_once_everything_is_given_back(self) -> None:
        for _ in range(10_000):
            holding = [account for account in self.accounts if self.parts[account]]
            if not holding:
                break
            holding[0].give_back(self.parts[holding[0]].pop(0))
        assert not any(self.lines.values()), "somebody waits although nothing is held"
        assert self.budget.held == 0
        self.charged = False

    @invariant()
    def the_bytes_of_every_level_are_those_of_the_model(self) -> None:
        by_name: dict[str, int] = {}
        for account in self.accounts:
            held = sum(self.parts[account])
            assert account.held == held
            name = account.principal.name
            by_name[name] = by_name.get(name, 0) + held
        assert {name: p.held for name, p in self.budget.principals.items()} == by_name
        assert self.budget.held == sum(by_name.values())
        held = [account.held for account in self.accounts]
        assert self.budget.largest() == (max(by_name.values(), default=0), max(held, default=0))
        assert self.budget.tickets == sum(map(len, self.lines.values()))

    @invariant()
    def no_level_is_over_its_limit_unless_something_was_charged(self) -> None:
        if not self.charged:
            assert self.budget.held <= NODE
            assert all(p.held <= PRINCIPAL for p in self.budget.principals.values())
            assert all(account.held <= CONNECTION for account in self.accounts)

    @invariant()
    def who_holds_nothing_waits_for_a_reserve_that_is_full(self) -> None:
        for account in self.accounts:
            if account.held or not self.lines[account]:
                continue
            principal = account.principal
            full_principal = principal.held + FLOOR > PRINCIPAL
            full_node = self.budget.held + FLOOR > NODE
            over_floor = (
                principal.held + FLOOR > FLOOR and self.budget.held > NODE - NODE // 4 - FLOOR
            )
            assert full_principal or full_node or over_floor


Machine.TestCase.settings = settings(max_examples=300, stateful_step_count=60, deadline=None)
TestMachine = pytest.mark.slow(Machine.TestCase)


@given(
    others=st.lists(st.sampled_from("bcdefgh"), min_size=1, max_size=40),
    sizes=st.lists(st.integers(1, FLOOR), min_size=1, max_size=40),
)
@settings(max_examples=200, deadline=None)
def test_a_ticket_waits_for_as_many_grants_as_principals_at_most(
    others: list[str], sizes: list[int]
) -> None:
    """One principal with one ticket, among principals that ask again as soon as they are served."""
    budget = Budget(LIMITS)
    holders = full(budget, "12345678")
    grants: list[str] = []
    held: deque[tuple[Account, int]] = deque()

    def ask(account: Account, size: int) -> None:
        def on_room() -> None:
            grants.append(account.principal.name)
            held.append((account, size))
            ask(account, size)

        account.wait(size, 0.0, on_room)

    for at, name in enumerate(others):
        ask(budget.open(name), sizes[at % len(sizes)])
    victim = budget.open("victim")
    ask(victim, FLOOR)
    for account in holders:
        account.close()
    for _ in range(10_000):
        if "victim" in grants:
            break
        account, size = held.popleft()
        account.give_back(size)
    assert "victim" in grants
    most = max(grants.count(name) for name in set(others))
    assert most <= NODE // min(sizes) + 1
