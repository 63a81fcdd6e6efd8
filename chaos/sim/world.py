"""One run of one seed: build the cluster, run it through faults, heal it, and judge it.

Faults last until `fault_seconds`. Then, in some runs, a majority is healed and must go on without
the rest (L1). Then everything is healed and must converge by itself (L2). Clients start nothing new
after `drain_seconds`. At `seconds` at the latest every request is answered, and every replica holds
the same state at the same index; otherwise the run gets `grace_seconds` more before this counts as
a violation. At the end the history is compared with every node's contents, in some runs after
another power loss of all nodes.
"""

import random
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from ...client.protocol.invariants import InvariantError
from ...node.directory import meta_keys
from ...node.rules.generation_ends import end_of, prepared_end
from ...node.rules.recovering import row_gid
from ...partitions import recovery
from ...partitions.metadata import Metadata
from ...partitions.model import Descriptor, Lineage, Span
from ...raft.types import GroupId
from ...statemachine.range_state import Base
from .clients import Client, Reply
from .clock import START_S, Scheduler, VirtualClock
from .cluster import founded
from .consumers import Consumer
from .cursors import READERS, CursorHistory, CursorReader
from .deliveries import Deliveries
from .faults import Fault
from .generations import Generations
from .hindrance import Hindrance
from .history import History
from .host import Host
from .letters import LetterHistory
from .nemesis import Nemesis
from .network import Network
from .operations import Operations
from .operator import Operator
from .options import Options
from .replica import RangeReplica
from .store import Contents, ReplicaStore
from .trace import Trace
from .views import ViewAskers, ViewHistory
from .violation import Violation

READER_IDS: Final = 100
"""Readers are named above all clients."""
_LETTER_S: Final = 0.5
"""More than a dead letter takes: two commands of its range, and an append between them."""
_CHECK_EVERY_S: Final = 0.1
_PROGRESS_WITHIN_S: Final = 5.0
"""A leader loss costs no client more than 3 s; a client may also have to wait for one timeout."""


@dataclass(slots=True)
class Outcome:
    """The result of one run. `violation` is None when every promise held."""

    seed: int
    options: str
    simulated_s: float = 0.0
    acked: int = 0
    reads: int = 0
    elections: int = 0
    crashes: int = 0
    faults: int = 0
    checkpoints: int = 0
    bases: int = 0
    wakes: int = 0
    removals: int = 0
    leased: int = 0
    commits: int = 0
    """Acknowledged commits of cursors."""
    fenced: int = 0
    """Refused commits and openings of cursors."""
    merges: int = 0
    repairs: int = 0
    """Damaged segments that were replaced by those of peers."""
    seals: int = 0
    splits: int = 0
    joins: int = 0
    """Ranges that two ranges were merged into."""
    replacements: int = 0
    """Generations in which others replaced members that are dead or removed."""
    recoveries: int = 0
    """Generations that went on from a single member."""
    given: int = 0
    """Batches that consumers of the group were given."""
    letters: int = 0
    """Entries that became dead letters."""
    outputs: int = 0
    """Outputs that were appended with acknowledgements."""
    seen: int = 0
    """Answers that a view has seen an entry; `unseen`: that it has not, in time."""
    unseen: int = 0
    lost: int = 0
    """Acknowledged entries that these recoveries have lost."""
    events: int = 0
    trace: str = ""
    violation: str | None = None
    detail: list[str] = field(default_factory=list)
    schedule: list[dict[str, Any]] = field(default_factory=list)
    """The faults that began, for a replay of them alone."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class World:
    """The cluster, its clients and its nemesis."""

    def __init__(
        self,
        seed: int,
        options: Options,
        sink: Callable[[str], None] | None = None,
        schedule: Sequence[Fault] | None = None,
    ) -> None:
        self.seed = seed
        self.options = options
        self.clock = VirtualClock()
        self.scheduler = Scheduler(self.clock)
        self.trace = Trace(self.clock, sink)
        self.loss = 0.0
        self.duplicate = 0.0
        self.delay_mean = 0.001
        self.history = History()
        self.deliveries = Deliveries(LetterHistory(self.history), options.unordered)
        self.cursors = CursorHistory()
        self.views = ViewHistory(self.deliveries, self.cursors)
        self.elections = 0
        self.checkpoints = 0
        self.bases = 0
        self.wakes = 0
        """How often a leader at rest was woken."""
        self.merges = 0
        """How often a replica replaced or removed segments."""
        self.repairs = 0
        """How often a peer's segment replaced a damaged one."""
        self.network = Network(self.scheduler, random.Random(f"{seed} network"), self.trace)
        self.generations = Generations()
        self._rng = random.Random(f"{seed} world")
        phases = random.Random(f"{seed} phases")
        # A cluster that grows may still have its ranges on one node; so may a recovered range.
        self._proves_progress = phases.random() < 0.3 * options.phases and not (
            options.grows or options.recovers
        )
        self._ends_in_the_dark = phases.random() < 0.3 * options.phases
        metadata = founded(options)
        self.hosts = {
            node: Host(self, node, metadata, random.Random(f"{seed} host {node}"))
            for node in metadata.nodes
        }
        self.operations = Operations(self)
        self.nemesis = Nemesis(
            options=options,
            scheduler=self.scheduler,
            seed=seed,
            trace=self.trace,
            network=self.network,
            machines=self.hosts,
            clients=self,
            change=self.operations.begin,
            schedule=schedule,
        )
        self.operator = Operator(self)
        self.clients = [
            Client(
                client_id=number,
                options=options,
                door=self,
                scheduler=self.scheduler,
                rng=random.Random(f"{seed} client {number}"),
                trace=self.trace,
                history=self.history,
            )
            for number in range(1, options.clients + 1)
        ]
        self.readers = [self._reader(number) for number in range(1, 1 + READERS * options.cursors)]
        self.consumers = self._new_consumers()
        self._hindrance = self._new_hindrance()

    def _new_consumers(self) -> list[Consumer]:
        """Return consumers whose requests draw from sources of their own."""
        return [
            Consumer(
                number, self.options, _OwnLine(self, random.Random(f"{self.seed} line {number}")),
                self.scheduler, random.Random(f"{self.seed} consumer {number}"), self.trace,
                self.history, self.deliveries.makes, random.Random(f"{self.seed} output {number}"),
            )
            for number in range(1, self.options.consumers + 1)
        ]  # fmt: skip

    def _new_hindrance(self) -> Hindrance:
        rng = random.Random(f"{self.seed} hindrance")
        return Hindrance(self.consumers, self.options, rng)

    def _wait_for_views(self) -> None:
        """Let clients wait for views, with requests that draw from a source of their own."""
        line = _OwnLine(self, random.Random(f"{self.seed} line of views"))
        rng = random.Random(f"{self.seed} views")
        askers = ViewAskers(self.options, line, self.scheduler, rng, self.views)
        for client in self.clients if self.options.views else ():
            client.on_ack = askers.appended

    def _reader(self, number: int) -> CursorReader:
        rng = random.Random(f"{self.seed} reader {number}")
        client = Client(
            client_id=READER_IDS + number, options=self.options, door=self,
            scheduler=self.scheduler, rng=rng, trace=self.trace, history=self.history,
        )  # fmt: skip
        return CursorReader(self.options, client, self.scheduler, rng, self.trace, self.history,
                            self.cursors)  # fmt: skip

    @property
    def _askers(self) -> list[Client | CursorReader]:
        return [*self.clients, *self.readers]

    # Between clients and nodes.

    def request(
        self, node: int, body: dict[str, Any], answer: Callable[[Reply], None],
        rng: random.Random | None = None,
    ) -> None:  # fmt: skip
        """Carry a request to a node and its answer back; either may be lost, late or doubled."""
        rng = rng or self._rng
        host = self.hosts[node]
        doubled = False

        def arrive() -> None:
            host.request(body, back)

        def back(reply: Reply) -> None:
            # If a request was doubled, the answer to one says nothing of the other.
            told = {**reply, "outcome": "unknown"} if doubled else reply
            self._carry(lambda: answer(told), rng)

        self._carry(arrive, rng)
        if self.duplicate and rng.random() < self.duplicate:
            doubled = True
            self._carry(arrive, rng)

    def _carry(self, action: Callable[[], None], rng: random.Random) -> None:
        if self.loss and rng.random() < self.loss:
            return
        delay = 0.0005 + rng.expovariate(1.0) * self.delay_mean
        self.scheduler.after(delay, action)

    # The run.

    def run(self) -> None:
        """Run the world. Raises Violation, or any error of the product."""
        options = self.options
        for host in self.hosts.values():
            self.network.add(host)
        for host in self.hosts.values():
            host.start()
        for asker in self._askers:
            asker.start()
        for consumer in self.consumers:
            consumer.start()
        self._wait_for_views()
        self.nemesis.start()
        if options.loses or options.recovers:
            self.operator.start()
        self._run_until(options.fault_seconds)
        drain = options.drain_seconds
        if self._proves_progress:
            self.nemesis.heal_majority()
            self._require_progress(options.fault_seconds + _PROGRESS_WITHIN_S)
            drain = self.clock.elapsed + 2.0
        self.nemesis.heal()
        self._run_until(drain)
        for asker in self._askers:
            asker.stop()
        self._hindrance.begin()
        self._run_until(options.seconds, stop_when_converged=True)
        self._require_convergence()
        self._hindrance.end()
        self._require_convergence()
        if self._ends_in_the_dark:
            self.trace("world", "finale", "power loss of all")
            for host in self.hosts_left():
                host.power_loss()
            for host in self.hosts_left():
                host.start()
            self._require_convergence()
        self._compare_contents()

    def hosts_left(self) -> list[Host]:
        """The hosts whose machines are not lost for good."""
        return [host for node, host in self.hosts.items() if node not in self.nemesis.gone]

    def _require_progress(self, until_s: float) -> None:
        """Check that a client's request is answered by then.

        Clients may have been silent; their last requests have the same time.
        """
        before = self._answers()
        self._run_until(until_s)
        waits = [client.waits_since for client in self.clients if client.open_requests]
        if self._answers() == before and waits:
            self._run_until(max(until_s, min(waits) - START_S + _PROGRESS_WITHIN_S))
        if self._answers() == before and waits:
            state = "; ".join(host.describe() for host in self.hosts.values())
            raise Violation("L1", "a healthy majority answers nothing", nodes=state)

    def _answers(self) -> int:
        told = self.history.acked + self.history.reads
        return told + sum(client.answers for client in self.clients)

    def _run_until(self, elapsed_s: float, *, stop_when_converged: bool = False) -> bool:
        end = START_S + elapsed_s
        while self.clock.now < end:
            pause = min(end, self.clock.now + _CHECK_EVERY_S) if stop_when_converged else end
            while self.scheduler.step(pause):
                pass
            if stop_when_converged and self.converged():
                return True
        return False

    def converged(self) -> bool:
        """Whether every request is answered, and every replica has all entries of its leader."""
        if any(asker.open_requests for asker in self._askers):
            return False
        return self.operations.converged() and not self._unconsumed()

    def _unconsumed(self) -> list[tuple[bytes, int]]:
        """Return the entries that consumers have not acknowledged, without those of a hindrance."""
        if not self.consumers:
            return []
        leaders = (
            replica
            for host in self.hosts.values() if host.replicas is not None
            for replica in host.replicas.ranges() if replica.leads
        )  # fmt: skip
        may_wait = self._hindrance.keys
        return [
            left for leader in leaders for left in self.deliveries.left(leader.last_contents())
            if left[0] not in may_wait
        ]  # fmt: skip

    def _require_convergence(self) -> None:
        if self.converged() or self._run_until(self._patience(), stop_when_converged=True):
            return
        left = self._unconsumed()
        if left and self.operations.converged():
            hindrance = self._hindrance.kind
            self._hindrance.end()
            if hindrance and self._run_until(self._patience(), stop_when_converged=True):
                raise Violation("G5", "a consumer or a key delays other keys", hindrance=hindrance,
                                entries=left[:5])  # fmt: skip
            raise Violation("G4", "entries are never acknowledged", entries=left[:5])
        state = "; ".join(host.describe() for host in self.hosts.values())
        waiting = {client.name: client.open_requests for client in self.clients}
        waiting |= {reader.client.name: reader.open_requests for reader in self.readers}
        raise Violation("L2", "no convergence after the faults ended", open=waiting, nodes=state)

    def _patience(self) -> float:
        """Return until when all must have settled, in seconds of the run. Dead letters are copied
        one after the other."""
        copied = len(self._unconsumed()) if self.options.letters else 0
        return self.clock.elapsed + self.options.grace_seconds + _LETTER_S * copied

    def _compare_contents(self) -> None:
        shown: dict[GroupId, Contents] = {}
        for node, host in self.hosts.items():
            contents: Contents = {}
            replicas = [] if host.replicas is None else host.replicas.ranges()
            for replica in replicas:
                own = replica.contents()
                if shown.setdefault(replica.gid, own) != own:
                    raise Violation("state-machine-safety", "members show different entries",
                                    node=node, gid=replica.gid)  # fmt: skip
                contents.update(own)
            spans = [replica.descriptor.span for replica in replicas]

            def covers(key: bytes, spans: list[Span] = spans) -> bool:
                return any(key in span for span in spans)

            self.history.final(node, contents, covers)

            def position(name: str, key: bytes, replicas: Sequence[RangeReplica] = replicas) -> int:
                (own,) = (each for each in replicas if key in each.descriptor.span)
                cursor = own.store.state.cursors.found.get(name)
                return 0 if cursor is None else cursor.position(key)

            self.cursors.final(node, position, covers)

    def decided(self, metadata: Metadata, operation: int) -> None:
        """Note that the controller has committed the outcome of an operation."""
        ends = {node: _ends(host) for node, host in self.hosts.items()}
        kind = metadata.operations[operation].kind
        for range_ in metadata.ranges.values():
            if range_.operation == operation:
                news = self.generations.decided(range_, ends, kind)
                if news and kind == recovery.KIND:
                    self._accept_loss(range_)

    def _accept_loss(self, range_: Descriptor) -> None:
        """Accept the loss of a range that goes on from the state of its only member."""
        (parent,) = range_.lineage
        host = self.hosts[range_.members[0]]
        row = host.durable.row(meta_keys.replica_key(GroupId(*parent[:2])))
        store = ReplicaStore(host.durable, range_, Base.from_wire(row["base"]), host.rng)
        since = self.generations.kept_below(parent)
        until = parent.next_seq + recovery.SEQS_LEFT_OUT
        lost = self.history.lose(range_.span, since, until, store.contents())
        told = f"{range_.range_id}/{range_.generation} lost={lost}"
        self.trace("world", "recovered", told)


class _OwnLine:
    """A consumer's way to the nodes, with a source of randomness of its own."""

    def __init__(self, world: World, rng: random.Random) -> None:
        self._world = world
        self._rng = rng

    def request(self, node: int, body: dict[str, Any], answer: Callable[[Reply], None]) -> None:
        """Carry a request and its answer."""
        self._world.request(node, body, answer, self._rng)


def _ends(host: Host) -> set[Lineage]:
    """Return the ends of generations that a machine holds durably, even if its process is down."""
    meta = host.durable.meta
    found = {prepared_end(row).lineage for _, row in meta.items(meta_keys.PREPARED)}
    for key, row in meta.items(meta_keys.REPLICA):
        found.add(end_of(row_gid(key), Base.from_wire(row["base"])))
    return {end for end in found if end is not None}


def run_seed(
    seed: int,
    options: Options,
    sink: Callable[[str], None] | None = None,
    schedule: Sequence[Fault] | None = None,
) -> Outcome:
    """Run one seed to its end or to its first violation. Findings never raise.

    With a schedule, exactly its faults happen instead of those that the seed would draw.
    """
    return judge(World(seed, options, sink, schedule))


def judge(world: World) -> Outcome:
    """Run an existing world to its end or to its first violation."""
    outcome = Outcome(world.seed, str(world.options))
    try:
        world.run()
    except Violation as violation:
        outcome.violation = str(violation)
    except InvariantError as error:
        outcome.violation = f"invariant: {error}"
        outcome.detail = traceback.format_exc().splitlines()[-8:]
    except Exception as error:  # any error of the product is a finding of this seed
        outcome.violation = f"exception: {type(error).__name__}: {error}"
        outcome.detail = traceback.format_exc().splitlines()[-16:]
    outcome.simulated_s = round(world.clock.elapsed, 3)
    outcome.acked = world.history.acked
    outcome.reads = world.history.reads
    outcome.elections = world.elections
    outcome.crashes = world.nemesis.crashes
    outcome.faults = len(world.nemesis.schedule)
    outcome.checkpoints = world.checkpoints
    outcome.bases = world.bases
    outcome.wakes = world.wakes
    outcome.removals = world.history.removed.done_count
    outcome.leased = world.history.leased
    outcome.commits = world.cursors.commits
    outcome.fenced = world.cursors.fenced
    outcome.merges = world.merges
    outcome.repairs = world.repairs
    outcome.seals = world.generations.seals
    outcome.splits = world.generations.splits
    outcome.joins = world.generations.joins
    outcome.replacements = world.generations.replacements
    outcome.recoveries = world.generations.recoveries
    outcome.given = world.deliveries.batches
    outcome.letters = world.deliveries.letters.passed
    outcome.outputs = world.deliveries.outputs
    outcome.seen = world.views.seen
    outcome.unseen = world.views.unseen
    outcome.lost = world.history.lost
    outcome.events = world.scheduler.ran
    outcome.trace = world.trace.digest()
    if outcome.violation is not None:
        outcome.detail += list(world.trace.tail)
    outcome.schedule = [fault.to_json() for fault in world.nemesis.schedule]
    return outcome
