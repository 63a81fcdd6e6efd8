"""Which keys belong to which manifest, and which objects of a tier nothing needs. No I/O.

The docstring of the folder has the contract.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...statemachine.spans import EVERYTHING, Span, common
from .claims import unanswered
from .manifest import Manifest
from .names import Chain, StoredFile, manifest_name


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The manifests of one moment: the numbers of each chain, and the heads."""

    numbers: Mapping[Chain, Sequence[int]]
    heads: Mapping[Chain, Manifest]


def without(span: Span, taken: Iterable[Span]) -> list[Span]:
    """Return the parts of a span that no taken span has, in order."""
    found = [span]
    for each in taken:
        rest: list[Span] = []
        for part in found:
            both = common(part, each)
            if both is None:
                rest.append(part)
                continue
            if part[0] < both[0]:
                rest.append((part[0], both[0]))
            if both[1] is not None and (part[1] is None or both[1] < part[1]):
                rest.append((both[1], part[1]))
        found = rest
    return found


def _joined(spans: Iterable[Span]) -> list[Span]:
    """Return the union of spans as few spans, in order."""
    found: list[Span] = []
    for start, end in sorted(spans, key=lambda span: span[0]):
        if found and (found[-1][1] is None or start <= found[-1][1]):
            last = found[-1]
            later = None if end is None or last[1] is None else max(end, last[1])
            found[-1] = (last[0], later)
        else:
            found.append((start, end))
    return found


def own_spans(heads: Iterable[Manifest]) -> dict[Chain, list[Span]]:
    """Return the keys of each chain of one log that no whole head of a later generation has.

    An empty list: the chain is covered.
    """
    by_generation: defaultdict[int, list[Manifest]] = defaultdict(list)
    for head in heads:
        by_generation[head.chain.generation].append(head)
    taken: list[Span] = []
    found: dict[Chain, list[Span]] = {}
    for generation in sorted(by_generation, reverse=True):
        for head in by_generation[generation]:
            found[head.chain] = without(head.span, taken)
        spans = [head.span for head in by_generation[generation] if head.is_whole]
        taken = _joined([*taken, *spans])
    return found


def by_log(heads: Iterable[Manifest]) -> dict[int, list[Manifest]]:
    """Return the heads of each log, by the id of the log."""
    found: defaultdict[int, list[Manifest]] = defaultdict(list)
    for head in heads:
        found[head.log.log_id].append(head)
    return dict(found)


@dataclass(frozen=True, slots=True)
class LogPieces:
    """A log in a tier: which keys a restore reads from which whole head, in the order of keys.

    `gaps`: keys that no whole head has. The facts are those of the newest manifest that is not
    covered: wall clocks may be wrong, and a covered manifest has the facts of an earlier time.
    """

    newest: Manifest
    pieces: Sequence[tuple[Span, Manifest]]
    gaps: Sequence[Span] = field(default_factory=list)


def logs(heads: Iterable[Manifest]) -> Iterator[LogPieces]:
    """Yield the logs of a tier, by name."""
    found = []
    for some in by_log(heads).values():
        spans = own_spans(some)
        pieces = [(span, head) for head in some if head.is_whole for span in spans[head.chain]]
        pieces.sort(key=lambda piece: piece[0][0])
        gaps = without(EVERYTHING, (span for span, _ in pieces))
        newest = max(some, key=lambda head: (bool(spans[head.chain]), head.written_ms))
        found.append(LogPieces(newest, pieces, gaps))
    yield from sorted(found, key=lambda each: (each.newest.log.name, each.newest.log.log_id))


class Needs:
    """What is needed of a snapshot. `is_gone`: whether a log was deleted, by its id."""

    def __init__(self, snapshot: Snapshot, is_gone: Callable[[int], bool]) -> None:
        self._snapshot = snapshot
        self._is_gone = is_gone
        self._covered = {
            chain
            for log_id, heads in by_log(snapshot.heads.values()).items()
            for chain, spans in own_spans(heads).items()
            if not spans or is_gone(log_id)
        }
        self._held = {
            held.path
            for chain, head in snapshot.heads.items()
            if chain not in self._covered
            for held in head.held.values()
        }
        self._claims = self._unanswered()
        for chain, names in self._claims.items():
            self._held.update(snapshot.heads[chain].held[name].path for name in names)

    def _unanswered(self) -> dict[Chain, set[str]]:
        """Return the files of covered chains that a member still needs, by chain.

        The member has not spoken yet in a chain that has the keys now.
        """
        found: dict[Chain, set[str]] = {}
        for log_id, heads in by_log(self._snapshot.heads.values()).items():
            for head in heads:
                if head.chain not in self._covered or self._is_gone(log_id):
                    continue
                later = [
                    each for each in heads
                    if each.is_whole and each.chain.generation > head.chain.generation
                    and each.chain not in self._covered
                    and common(each.span, head.span) is not None
                ]  # fmt: skip
                names = unanswered(head, later)
                if names:
                    found[head.chain] = names
        return found

    def may_go(self, file: StoredFile) -> bool:
        """Whether no manifest of this snapshot, and none that comes later, names the file."""
        if file.path in self._held:
            return False
        head = self._snapshot.heads.get(file.chain)
        if head is None:
            # The snapshot may be from before the begin of the chain. But the next generation begins
            # with the end of this one: then the chain was removed, and an old leader woke up later.
            return Chain(file.chain.range_id, file.chain.generation + 1) in self._snapshot.heads
        return file.chain in self._covered or file.label < head.number

    def manifests_that_may_go(self, with_files: Callable[[Chain], bool]) -> Iterator[str]:
        """Yield the names of manifests that nobody needs.

        `with_files`: whether the tier has files of the chain. The head of a covered chain stays
        until they are gone: it keeps a member that wakes up from taking an earlier number for the
        newest. It also stays while claims of it keep files, which may be those of another chain.
        """
        for chain, numbers in self._snapshot.numbers.items():
            head = self._snapshot.heads[chain].number
            ends = chain in self._covered and not with_files(chain) and chain not in self._claims
            for number in numbers:
                if number < head or ends:
                    yield manifest_name(chain, number)
