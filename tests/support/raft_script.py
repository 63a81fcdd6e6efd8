"""Scripts for a raft group: commands and their results, in the style of etcd raft's testdata.

A script is a sequence of blocks: lines of commands, a line `----`, the output. Lines that begin
with # are comments. Nothing happens by itself: messages wait until `deliver` or `stabilize`, time
stands still until `tick`, slow disks sync when told to.
"""

from raft_net import Flight, Net

from lognode.raft.guard import ALL_HOLES
from lognode.raft.messages import Append, decode
from lognode.raft.types import NotLeaderError

SEPARATOR = "----"
NAMES = {"reads": "ReadRound", "answers": "ReadAnswer"}
"""Of messages without a group."""


def run_script(text: str) -> str:
    """The script with the output that it produces now."""
    script = Script()
    blocks = []
    for block in text.split("\n\n"):
        given = block.split(f"\n{SEPARATOR}")[0].strip("\n")
        commands = [line for line in given.splitlines() if line and not line.startswith("#")]
        output = [line for command in commands for line in script.execute(command)]
        if commands:
            given = "\n".join([given, SEPARATOR, *(output or ["ok"])])
        blocks.append(given)
    return "\n\n".join(blocks) + "\n"


def show(flight: Flight) -> str:
    """One message, short."""
    if flight.kind == "reads":
        return f"ReadRound {flight.message[1]} asks t{flight.message[2][0][3]}"
    if flight.kind == "answers":
        return f"ReadAnswer {flight.message[1]} says {flight.message[2][0]}"
    body = decode(flight.message)
    name = type(body).__name__
    if isinstance(body, Append):
        entries = " ".join(
            f"{body.prev_index + 1 + n}/{int(term)}:{text(command)}"
            for n, (term, command) in enumerate(body.entries)
        )
        return (
            f"{name} t{body.term} after {body.prev_index}/{body.prev_term} "
            f"commit {body.commit} [{entries}]"
        )
    shown = ("round", "next_index", "last_index", "last_term", "base_index", "base_term")
    fields = [f"{f.removesuffix('_index')} {getattr(body, f)}" for f in shown if hasattr(body, f)]
    return " ".join([name, f"t{body.term}", *fields])


def text(command: object) -> str:
    assert isinstance(command, bytes)
    return command[1:].decode() if command[:1] == b"\x00" else "no-op"


class Script:
    """The state of one run."""

    def __init__(self) -> None:
        self.net = Net(0)
        self.lines: list[str] = []
        self.known: dict[int, tuple[object, ...]] = {}
        self.shown_flights: set[int] = set()

    def execute(self, line: str) -> list[str]:
        """One command; the lines it causes."""
        self.lines = []
        name, *arguments = line.split()
        getattr(self, "do_" + name.replace("-", "_"))(*arguments)
        self.observe()
        return self.lines

    def observe(self) -> None:
        """Let the members give what they have, and write down what changed."""
        self.net.pump()
        for node_id, member in self.net.members.items():
            group = member.group
            state = ("down",) if member.down else (group.role, group.term)
            before = self.known.get(node_id, (None, 0, 0))
            if state != before[:1] and state != before[:2]:
                what = "is down" if member.down else f"is {group.role} of term {group.term}"
                self.lines.append(f"{node_id} {what}")
            applied = 0 if state == ("down",) else len(member.applied)
            since = before[-1] if isinstance(before[-1], int) else 0
            for entry in member.applied[since:applied]:
                self.lines.append(
                    f"{node_id} applies {entry.index}/{entry.term}:{text(entry.command)}"
                )
            self.known[node_id] = (*state, max(since, applied))
            for ticket, index in sorted(member.reads.items()):
                self.lines.append(f"{node_id} read {ticket} at {index}")
            member.reads.clear()
        for flight in sorted(self.net.flights):
            if flight.number not in self.shown_flights:
                self.shown_flights.add(flight.number)
                self.lines.append(f"{flight.source}->{flight.target} {show(flight)}")

    def flights(self, arguments: tuple[str, ...]) -> list[Flight]:
        """Of `[source] [target] [kind]`; * is any."""
        source, target, kind = (*arguments, *("*" * (3 - len(arguments))))
        return [
            flight
            for flight in sorted(self.net.flights)
            if source in ("*", str(flight.source))
            and target in ("*", str(flight.target))
            and kind in ("*", NAMES.get(flight.kind, type(flight.body).__name__))
        ]

    # Commands.

    def do_group(self, members: str, *open_holes: str) -> None:
        """group N [hole ...]: N new members, linked, not started."""
        closed = ALL_HOLES - {int(hole) for hole in open_holes}
        self.net = Net(int(members), delay_s=0.0, closed=closed)
        self.known = dict.fromkeys(self.net.ids, ("follower", 0, 0))

    def do_start(self, *node_ids: str) -> None:
        self.net.start(*map(int, node_ids))

    def do_campaign(self, node_id: str) -> None:
        """campaign ID: its election timeout passes."""
        group = self.net.group(int(node_id))
        group._elections.ask_now()
        group.tick()

    def do_propose(self, node_id: str, *texts: str) -> None:
        try:
            self.net.propose(int(node_id), *texts)
        except NotLeaderError:
            self.lines.append(f"{node_id} does not lead")

    def do_deliver(self, *arguments: str) -> None:
        """deliver [source] [target] [kind]: what is under way now, in the order it was sent."""
        for flight in self.flights(arguments):
            self.net.deliver(flight)

    def do_copy(self, *arguments: str) -> None:
        """copy [source] [target] [kind]: deliver, and leave under way."""
        for flight in self.flights(arguments):
            self.net.deliver(flight)
            self.net.flights.append(flight)

    def do_drop(self, *arguments: str) -> None:
        for flight in self.flights(arguments):
            self.net.flights.remove(flight)

    def do_stabilize(self) -> None:
        """Deliver until nothing is under way."""
        self.observe()
        while self.net.flights:
            self.net.deliver(min(self.net.flights))
            self.observe()

    def do_tick(self, seconds: str) -> None:
        """tick SECONDS: the clock moves at once, then everybody's deadlines are looked at."""
        self.net.now += float(seconds)
        for member in self.net.members.values():
            if not member.down:
                self.net.tick(member)

    def do_slow(self, *node_ids: str) -> None:
        """Their disks sync only when told to."""
        for node_id in node_ids:
            self.net.members[int(node_id)].slow_disk = True

    def do_sync(self, *node_ids: str) -> None:
        for node_id in node_ids:
            self.net.sync(int(node_id))

    def do_crash(self, node_id: str) -> None:
        self.net.crash(int(node_id))

    def do_restart(self, node_id: str) -> None:
        self.net.restart(int(node_id))

    def do_cut(self, source: str, target: str) -> None:
        self.net.cut(int(source), int(target))

    def do_isolate(self, node_id: str) -> None:
        self.net.isolate(int(node_id))

    def do_heal(self) -> None:
        self.net.heal()

    def do_cut_front(self, node_id: str, index: str) -> None:
        self.net.log(int(node_id)).cut_front(int(index))

    def do_read(self, node_id: str) -> None:
        ticket = self.net.group(int(node_id)).request_read()
        self.lines.append(f"{node_id} asks as read {ticket}")

    def do_status(self) -> None:
        for node_id, member in self.net.members.items():
            if member.down:
                continue
            group, log = member.group, member.log
            terms = [f"{i}/{log.term_at(i)}" for i in range(log.base_index, log.last_index + 1)]
            line = (
                f"{node_id}: {group.role} t{group.term} leader {group.leader} "
                f"commit {group.commit_index} durable {log.durable_index} log {' '.join(terms)}"
            )
            if group.needs_base:
                line += f" needs_base {sorted(group.needs_base)}"
            if group.base_wanted:
                line += " base_wanted"
            self.lines.append(line)
