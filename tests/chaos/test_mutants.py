"""Mutants of the product: each patch in `tests/mutants` breaks a promise, and the suite sees it.

A patch is applied to a copy of the product, never a switch in it. `LOGNODE_MUTANTS=all` runs every
one of them, over more seeds; without it some run, and of all it is checked that they still apply.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lognode.chaos.verdict import EXIT_CODES

ROOT = Path(__file__).parents[2]
PATCHES = sorted((ROOT / "tests" / "mutants").glob("*.patch"))
EVERY = os.environ.get("LOGNODE_MUTANTS") == "all"
QUICK = ("ack-before-fsync", "vote-never-written")
"""Those that the simulator finds without `LOGNODE_MUTANTS=all`: few seeds find them."""
DIRECTED = "follow-without-leader"
"""The fast mode has no follows: the directed case of the whole mode finds this one."""
UNIT = {
    "batch-without-acks": ("test_acked_appends.py", "test_G2_nothing_is_applied"),
    "kafka-commit-before-quorum": (
        "test_kafka_ledger.py::test_S9_commits_do_not_go_back_whatever_happens_to_the_answers",
        ">= least",
    ),
    "kafka-end-with-gap": (
        "test_tails.py::test_the_tails_are_the_last_seqs_whenever_they_are_asked",
        "own.told() == own.model",
    ),
    "passed-before-copied": (
        "test_dead_letters.py::test_G2_no_position_passes_an_entry_before_its_copy_is_acknowledged",
        "the copy is not acknowledged yet",
    ),
    "tier-claim-not-listed": (
        "test_tier_claims.py::test_a_claim_counts_only_once_a_listing_shows_its_manifest_as_the_head",
        "claims.granted(1, said, other) == {}",
    ),
    "tier-deletes-for-one-range": ("../sim/test_tier_only_kills.py", "the deadline has passed"),
    "tier-leader-drops-claims": ("test_tier_model.py", "a claimed file is not held"),
    "tier-manifest-replaced": ("test_tier_model.py", "went back"),
    "tier-member-drops-claims": ("test_tier_model.py", "which is gone"),
    "tier-parents-not-closed": (
        "test_tier.py::test_a_parent_publishes_nothing_more_once_a_child_has_its_files",
        "closed=True",
    ),
    "tier-place-not-stored": ("../sim/test_tier_only_kills.py", "is missing or too short"),
    "tier-sweep-ignores-claims": ("test_tier_model.py", "which is gone"),
}
"""The tests that find these, seen from `tests/unit`, and what the tests say. The simulator has its
own order of steps for dead letters, its leaders propose no acknowledgement that does not fit, and
the fast mode has no tier."""
WHOLE = {
    "restored-twice": ["--seed", "39"],
    "tier-children-upload-again": ["--with", "tier", "--seed", "0"],
    "tier-manifest-before-file": ["--with", "tier", "--seed", "0"],
    "tier-sweep-forgets-children": ["--with", "tier", "--seed", "7"],
    "tier-sweep-ignores-labels": ["--with", "tier", "--seed", "3"],
}
"""The seeds of the whole mode that find these: the fast mode has no restores and no tier."""
CHOSEN = [
    patch if EVERY or patch.stem in {*QUICK, DIRECTED} or (patch.stem in UNIT
    and not patch.stem.startswith("tier-")) else pytest.param(patch, marks=pytest.mark.by_hand)
    for patch in PATCHES if EVERY or patch.stem in {*QUICK, DIRECTED, *UNIT}
]  # fmt: skip
"""The mutants of the tier run by hand: their tests take minutes."""
_CASE = "from lognode.chaos.whole.cut_off import cut_off_follow; print(cut_off_follow(0))"


def mutated(folder: Path, patch: Path) -> Path:
    """A folder with the package `lognode`, to which the patch is applied."""
    left_out = shutil.ignore_patterns(".*", "tests", "scripts", "docs", "__pycache__", "store")
    shutil.copytree(ROOT, folder / "lognode", ignore=left_out)
    # One line of context on each side places a hunk. So a change nearby seldom breaks a patch.
    done = subprocess.run(
        ["git", "apply", "-C1", "--verbose", str(patch)], cwd=folder / "lognode",
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{patch.name} no longer applies:\n{done.stderr}"
    return folder


def test_there_is_one_for_each_row_of_the_list() -> None:
    assert [patch.stem for patch in PATCHES] == [
        "ack-before-fsync", "acks-without-batch", "append-passes-entries", "base-loses-level",
        "batch-without-acks", "claim-takes-leased-keys", "damage-not-stored", "dedupe-by-batch",
        "fenced-commit-accepted", "floor-passes-slow-keys", "follow-without-leader",
        "group-takes-old-tokens", "kafka-commit-before-quorum", "kafka-end-with-gap", "late-seal",
        "letters-named-alike", "mark-not-stored",
        "merge-keeps-one-parent", "no-read-barrier", "no-read-index", "no-term-check",
        "passed-before-copied", "restored-twice", "seen-before-durable", "seen-though-removed",
        "session-token-ignored", "slow-key-stops-range", "split-forgets-cursors",
        "split-forgets-producers", "split-forgets-rows", "tier-children-upload-again",
        "tier-claim-not-listed", "tier-deletes-for-one-range", "tier-leader-drops-claims",
        "tier-manifest-before-file", "tier-manifest-replaced", "tier-member-drops-claims",
        "tier-parents-not-closed", "tier-place-not-stored", "tier-sweep-forgets-children",
        "tier-sweep-ignores-claims", "tier-sweep-ignores-labels",
        "unknown-becomes-not-applied", "vote-never-written",
    ]  # fmt: skip


def test_each_mutant_still_applies() -> None:
    for patch in PATCHES:
        done = subprocess.run(
            ["git", "apply", "--check", "-C1", str(patch)], cwd=ROOT, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{patch.name} no longer applies:\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("patch", CHOSEN, ids=lambda patch: patch.stem)
def test_a_mutant_is_found(tmp_path: Path, patch: Path) -> None:
    source = mutated(tmp_path, patch)
    if patch.stem == DIRECTED:
        done = subprocess.run(
            [sys.executable, "-c", _CASE], cwd=tmp_path, timeout=120, capture_output=True,
            env=os.environ | {"PYTHONPATH": str(source)}, text=True,
        )  # fmt: skip
        assert "entries were not delivered" in done.stdout, done.stderr[-2000:]
        return
    if patch.stem in UNIT:
        name, told = UNIT[patch.stem]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
             str(ROOT / "tests" / "unit" / name)],
            cwd=tmp_path, timeout=120, capture_output=True,
            env=os.environ | {"PYTHONPATH": str(source)}, text=True,
        )  # fmt: skip
        assert told in done.stdout, done.stdout[-2000:]
        assert re.search(r"\d (failed|error)", done.stdout)
        return
    if patch.stem in WHOLE:
        seeds = ["--whole", *WHOLE[patch.stem]]
    else:
        seeds = ["--seeds", f"0..{200 if EVERY else 30}"]
    done = subprocess.run(
        [sys.executable, "-m", "lognode.chaos.main", "sim", *seeds],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(source)}, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    print(done.stdout[-2000:])
    assert done.returncode == EXIT_CODES["invalid"], done.stderr[-2000:]
    assert "VIOLATION" in done.stdout
