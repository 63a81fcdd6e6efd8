"""Files that a node has in the tier only, and the claims that keep them there. No I/O.

The chain of manifests itself is the register of these files: a manifest names, for each node, the
files that the node claims. So no leader, lease or clock decides whether a file may leave a disk.
The docstring of the folder has the contract.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from .manifest import Held, Manifest
from .planning import next_of


def surplus(files: Sequence[tuple[str, int]], local: Collection[str], bytes_max: int) -> list[str]:
    """Return the local files to give up, the oldest first, until the rest is within the bound.

    `files`: content ids and sizes in the order of the range's manifest. The newest files stay, so
    that files which a merge may join are local together.
    """
    rest = sum(size for name, size in files if name in local)
    found = []
    for name, size in files:
        if rest <= bytes_max:
            break
        if name in local:
            found.append(name)
            rest -= size
    return found


def claimable(head: Manifest | None, wished: Iterable[str]) -> list[str]:
    """Return those of the wished files that the head of a chain lets a node claim."""
    if head is None or head.closed:
        return []
    return [name for name in wished if name in head.held]


def spoken(
    node: int, head: Manifest | None, absent: Mapping[str, Held], wished: Iterable[str] = ()
) -> Manifest | None:
    """Return the manifest with which a node claims files, or None if nothing is to be said.

    `absent`: where the files are that the node has in the tier only and that its replica of this
    generation needs. They are claimed even if the head does not name them: a chain of a generation
    before does, until this node has spoken here. `wished`: files to claim before the node deletes
    or does without its own copies; only those count that the head holds. A wish always makes a
    manifest, since only a manifest of this very wish shows that the head holds the files now.
    """
    if head is None or head.closed:
        return None
    wishes = claimable(head, wished)
    claimed = dict.fromkeys((*absent, *wishes))
    before = head.claims.get(node)
    known = before is not None and set(before) == set(claimed)
    if known and not wishes:
        return None
    claims = {**head.claims, node: tuple(claimed)}
    needed = {name for each in claims.values() for name in each}.union(head.files)
    released = set(before or ()) - needed
    held = {name: each for name, each in head.held.items() if name not in released}
    held |= {name: each for name, each in absent.items() if name not in held}
    return replace(next_of(head), held=held, claims=claims)


def granted(node: int, said: Manifest, head: Manifest | None) -> dict[str, Held]:
    """Return the files that the node may do without, and where they are.

    `head`: of a look after `said` was put. A manifest below the head may be put, when a sweep has
    removed those in between, and says nothing. The head after the put was the head at a moment when
    it claimed the files, and each later manifest keeps the claim.
    """
    if head is None or head.closed or _saying(head) != _saying(said):
        return {}
    return {name: said.held[name] for name in said.claims[node]}


def _saying(manifest: Manifest) -> tuple[object, ...]:
    return manifest.number, manifest.node, manifest.written_ms, dict(manifest.claims)


def is_answered(node: int, head: Manifest) -> bool:
    """Whether the claims of a node in earlier generations are over, as to the keys of this head.

    They are over when the node has spoken in this chain, or is not a member of its generation.
    """
    return node in head.claims or (bool(head.members) and node not in head.members)


def unanswered(head: Manifest, later: Collection[Manifest]) -> set[str]:
    """Return the files of a chain that claims need although later generations have its keys.

    `later`: the whole heads, not covered themselves, that share keys with this one.
    """
    return {
        name
        for node, files in head.claims.items()
        if not all(is_answered(node, each) for each in later)
        for name in files
    }


def joining(
    node: int, head: Manifest | None, wished: Collection[str],
    absent: Mapping[str, Held] = MappingProxyType({}),
) -> Manifest | None:  # fmt: skip
    """Return the manifest with which a node claims all files that a base from a peer needs.

    None: the chain cannot grant all of them. The chain may be of the generation before, in which
    several new replicas of one node claim files. So what the node has claimed there stays claimed.
    `absent`: as in `spoken`. The node may have a replica of this generation that has not spoken
    yet: with this manifest the node has, so the chain before keeps nothing more for the replica.
    """
    if head is None or len(claimable(head, wished)) < len(wished):
        return None
    before = {name: head.held[name] for name in head.claims.get(node, ())}
    return spoken(node, head, {**absent, **before}, wished)
