"""The tier in all orders of events: paused leaders, lost answers, old listings, sweeps beside."""

import pytest
from tier_model import World

from lognode.node.tier.names import part_of
from lognode.node.tier.planning import Done, Wait, next_step

_SEEDS = [*range(60), 100]
_ACTIONS = 150


def run(seed: int) -> World:
    world = World(seed)
    for _ in range(3):
        for _ in range(_ACTIONS // 3):
            world.act()
        if max(member.chain.generation for member in world.members) < 3:
            world.next_generation()
    return world


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_restore_finds_all_files_at_any_moment_and_no_key_goes_back(seed: int) -> None:
    world = run(seed)
    world.settle()
    world.check()


def test_members_give_up_files_and_new_members_leave_files_in_the_tier() -> None:
    worlds = [run(seed) for seed in range(6)]
    assert sum(world.given_up for world in worlds) > 10
    assert sum(world.left for world in worlds) > 10


@pytest.mark.parametrize("seed", [*range(0, 60, 6), 229, 254])
def test_in_the_end_the_tier_has_the_newest_state_and_nothing_else(seed: int) -> None:
    world = run(seed)
    leaders = world.settle()
    heads = world.heads()
    last = leaders[0].chain.generation
    for leader in leaders:
        step = next_step(leader.own(), heads[leader.chain])
        assert isinstance(step, Done | Wait), step
    newest = [head for chain, head in heads.items() if chain.generation == last]
    held = {held.path for head in newest for held in head.held.values()}
    parts = [part for name in world.objects.found if (part := part_of(name)) is not None]
    assert {file.path for file, _ in parts} == held
    covered = {chain for chain in heads if chain.generation < last}
    folders = {file.chain for file, _ in parts}
    assert covered <= folders, "the manifest of a covered chain stays only while it has files"
