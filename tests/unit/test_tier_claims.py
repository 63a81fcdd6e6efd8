"""Files that a node has in the tier only: which local files go, and which claims keep them."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from tier_model import MemoryObjects

from lognode.client.protocol.errors import CorruptData
from lognode.node.tier import claims, planning
from lognode.node.tier.coverage import Needs, Snapshot
from lognode.node.tier.manifest import Held, LogFacts, Manifest
from lognode.node.tier.names import Chain, StoredFile
from lognode.node.tier.planning import Own
from lognode.node.tier.sweeps import Sweep
from lognode.node.tier.tier_store import TierStore

IDS = [hashlib.sha256(b"%d" % at).hexdigest() for at in range(9)]
FACTS = LogFacts(3, "orders", {"replicas": 3})
OLD, NEW = Chain(7, 1), Chain(7, 2)
ALL = (b"", None)


def held(*files: int, chain: Chain = OLD) -> dict[str, Held]:
    return {IDS[at]: Held(at, StoredFile(chain, IDS[at], 1).path) for at in files}


def head(*files: int, chain: Chain = OLD, also: tuple[int, ...] = (), **more: Any) -> Manifest:
    """Return a whole head with these files, which also holds others."""
    names = tuple(IDS[at] for at in files)
    given: dict[str, Any] = {"base": b"base", "members": (1, 2), **more}
    return Manifest(chain, 4, FACTS, ALL, held(*files, *also, chain=chain), names, (9, 2), **given)


def names(*files: int) -> tuple[str, ...]:
    return tuple(IDS[at] for at in files)


def own(*files: int, absent: tuple[int, ...] = ()) -> Own:
    sizes = {IDS[at]: at for at in files}
    return Own(NEW, ALL, FACTS, (10, 2), sizes, (OLD,), (1, 2), held(*absent))


@pytest.mark.parametrize(
    ("local", "bytes_max", "goes"),
    [
        ((1, 2, 3, 4), 10, ()),
        ((1, 2, 3, 4), 9, (1,)),
        ((1, 2, 3, 4), 7, (1, 2)),
        ((1, 2, 3, 4), 0, (1, 2, 3, 4)),
        ((3, 4), 7, ()),
        ((2, 4), 5, (2,)),
    ],
)
def test_the_oldest_local_files_go_until_the_rest_is_within_the_bound(
    local: tuple[int, ...], bytes_max: int, goes: tuple[int, ...]
) -> None:
    files = [(IDS[at], at) for at in (1, 2, 3, 4)]
    assert claims.surplus(files, names(*local), bytes_max) == list(names(*goes))


def test_a_node_claims_only_files_that_the_head_holds() -> None:
    said = claims.spoken(1, head(1, 2), {}, names(2, 3))
    assert said is not None
    assert said.claims == {1: names(2)}
    assert said.number == 5
    assert claims.granted(1, said, said) == held(2)
    for nothing in (None, head(1, 2, closed=True)):
        assert claims.spoken(1, nothing, held(1), names(2)) is None


def test_a_claim_counts_only_once_a_listing_shows_its_manifest_as_the_head() -> None:
    said = claims.spoken(1, head(1, 2), {}, names(2))
    assert said is not None
    later = replace(said, number=6)
    for other in (None, head(1, 2), later, replace(said, node=2), replace(said, closed=True)):
        assert claims.granted(1, said, other) == {}


def test_a_late_claim_below_the_head_counts_for_nothing() -> None:
    """The member is paused before its put, while a leader drops the file and a sweep follows."""
    objects = MemoryObjects()
    store = TierStore(objects)
    store.publish(head(1, 2))
    late = claims.spoken(1, store.head(OLD, own()), {}, names(2))
    assert late is not None
    for number in (5, 6):
        store.publish(replace(head(1), number=number))
    Sweep(TierStore(objects), 0.0).look(lambda log_id: False)
    assert store.publish(late), "the sweep has removed the manifest with this number"
    assert claims.granted(1, late, store.head(OLD, own())) == {}


def test_a_wish_makes_a_manifest_although_an_earlier_one_has_the_claim() -> None:
    before = head(1, 2, claims={1: names(2)})
    assert claims.spoken(1, before, held(2)) is None
    assert claims.spoken(1, before, {}, names(2)) is not None


def test_the_manifest_of_a_leader_holds_what_nodes_claim() -> None:
    before = head(1, 2, also=(3,), claims={2: names(1, 3)})
    based = planning.based(own(2), planning.next_of(before), b"new")
    assert set(based.held) == set(names(1, 2, 3))
    later = planning.with_file(own(2, 4), based, IDS[4], held(4)[IDS[4]])
    assert set(later.held) == set(names(1, 2, 3, 4))
    assert later.claims == before.claims


def test_a_file_whose_claim_ends_is_held_only_if_the_base_or_another_node_needs_it() -> None:
    before = head(1, also=(2, 3), claims={1: names(1, 2, 3), 2: names(3)})
    said = claims.spoken(1, before, {})
    assert said is not None
    assert set(said.held) == set(names(1, 3))
    assert said.claims == {1: (), 2: names(3)}


def test_a_leader_without_a_copy_publishes_where_the_file_is() -> None:
    begun = planning.first(own(1, 2, absent=(1,)), [])
    step = planning.next_step(own(1, 2, absent=(1,)), begun)
    assert step == planning.Adopt(IDS[1], held(1)[IDS[1]])
    assert planning.waiting(own(1, 2, absent=(1,)), begun.held) == (1, 2)


@pytest.mark.parametrize(
    ("later", "stays"),
    [
        ({}, True),
        ({"claims": {2: ()}}, True),
        ({"claims": {1: ()}}, False),
        ({"members": (2, 3)}, False),
        ({"members": ()}, True),  # written by an earlier version
        ({"base": None}, True),  # the old chain is not covered
    ],
)
def test_a_covered_chain_keeps_a_claimed_file_until_its_node_has_spoken(
    later: dict[str, Any], stays: bool
) -> None:
    old = head(1, 2, claims={1: names(1)}, closed=True)
    new = head(2, chain=NEW, **later)
    needs = Needs(Snapshot({OLD: [4], NEW: [4]}, {OLD: old, NEW: new}), lambda log_id: False)
    assert needs.may_go(StoredFile(OLD, IDS[1], 1)) is not stays
    gone = Needs(Snapshot({OLD: [4], NEW: [4]}, {OLD: old, NEW: new}), lambda log_id: True)
    assert gone.may_go(StoredFile(OLD, IDS[1], 1))


def test_both_children_of_a_split_must_answer() -> None:
    old = head(1, claims={1: names(1)}, closed=True)
    left = replace(head(chain=NEW, claims={1: ()}), span=(b"", b"m"))
    right = replace(head(chain=Chain(8, 2)), span=(b"m", None))
    chains = {OLD: old, NEW: left, right.chain: right}
    file = StoredFile(OLD, IDS[1], 1)
    numbers = {chain: [4] for chain in chains}
    assert not Needs(Snapshot(numbers, chains), lambda log_id: False).may_go(file)
    chains[right.chain] = replace(right, claims={1: ()})
    assert Needs(Snapshot(numbers, chains), lambda log_id: False).may_go(file)


def test_new_replicas_of_one_node_add_to_its_claims_and_get_all_or_nothing() -> None:
    before = head(1, 2, 3, claims={3: names(1)})
    said = claims.joining(3, before, names(2))
    assert said is not None
    assert set(said.claims[3]) == set(names(1, 2))
    assert claims.joining(3, before, names(2, 4)) is None
    assert claims.joining(3, None, names(2)) is None


def test_claims_are_read_as_they_are_written_and_checked() -> None:
    one = head(1, 2, claims={1: names(1), 2: ()})
    assert Manifest.of(OLD, 4, one.to_bytes()) == one
    bad = replace(one, claims={1: names(5)})
    with pytest.raises(CorruptData, match="a claimed file is not held"):
        Manifest.of(OLD, 4, bad.to_bytes())
