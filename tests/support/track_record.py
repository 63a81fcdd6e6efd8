"""What other logs and stores have lost, and how it is known that this one does not.

A row is run against real nodes, by arguments of `lognode-chaos test`, or is held by tests that are
named, or both.
"""

from dataclasses import dataclass

_SIM = "tests/sim/test_sim_seeds.py::test_S1_to_S9_S11_and_L2_hold_in_simulation"
_STEPS = (
    "tests/unit/test_storage_failpoints.py"
    "::test_S1_S2_x1_x3_x8_x10_x15_x16_x2_10_killed_at_every_step_of_storage"
)


@dataclass(frozen=True)
class Row:
    """`live`: arguments of a test against real nodes. `tests`: FILE::FUNCTION. `by_hand`: whether
    only `scripts/test by-hand` runs the test against real nodes."""

    name: str
    whose: str
    what: str
    live: str = ""
    tests: tuple[str, ...] = ()
    by_hand: bool = False


TRACK_RECORD = [
    Row(
        "healthy", "Bufstream", "a healthy cluster that loses writes",
        "-w append --nemesis none", by_hand=True,
    ),
    Row(
        "power-all", "NATS #7564", "acknowledged before fsync: a power cut of all lost 14 %",
        "-w append --nemesis power",
        (
            _SIM,
            "tests/chaos/test_power.py::test_S1_S2_storage_loses_power_at_its_steps",
        ),
        by_hand=True,
    ),
    Row(
        "part-kill", "NATS #7567", "a minority misses writes, then an acknowledged member dies",
        "-w append --nemesis part-kill", by_hand=True,
    ),
    Row(
        "pause-kill", "NATS #7567", "the same, with a minority that stands still",
        "-w set --nemesis pause-kill --nodes 5", by_hand=True,
    ),
    Row(
        "bitflip-log-minority", "NATS #7549", "flipped bits in logs of a minority lose writes",
        "-w append --nemesis corrupt",
        ("tests/cluster/test_node_damage.py::test_S12_a_flipped_bit_ends_one_replica_and_nothing_else",),
        by_hand=True,
    ),
    Row(
        "bitflip-snap-minority", "NATS #7556", "flipped bits in snapshots of a minority",
        tests=(
            "tests/cluster/test_segment_repair.py"
            "::test_S12_damage_that_a_read_finds_is_repaired_and_the_replica_goes_on",
            "tests/cluster/test_segment_repair.py"
            "::test_S12_x2_damage_that_a_start_finds_is_repaired_and_the_replica_begins",
        ),
    ),
    Row(
        "kill-loop", "NATS #6888", "writes lost by kills that follow each other",
        "-w append --nemesis kill --nemesis-interval 2", by_hand=True,
    ),
    Row(
        "lost-disk-no-vote", "NATS #7587", "a cut or wiped disk with the same id elects",
        tests=(
            "tests/cluster/test_node_repair.py"
            "::test_x2_a_member_that_lost_its_log_with_an_acknowledged_entry_grants_no_vote",
            "tests/unit/test_storage_start.py"
            "::test_S2_x15_a_log_that_has_lost_its_end_is_damage_not_a_reset",
            "tests/unit/test_storage_start.py"
            "::test_S2_x2_a_damaged_log_takes_no_part_and_is_remembered",
        ),
    ),
    Row(
        "dup-retry", "Redpanda #3039", "retries of an idempotent producer are applied twice",
        "-w exactly-once --nemesis packet,kill", by_hand=True,
    ),
    Row(
        "offsets", "Redpanda #3003", "positions that change under their readers",
        "-w append --nemesis partition,pause", by_hand=True,
    ),
    Row(
        "aborted-read", "Redpanda #3036", "what was refused is read",
        "-w register --nemesis partition,kill", by_hand=True,
    ),
    Row(
        "dedup-after-compaction", "Redpanda #5355", "compaction forgets what duplicates are",
        tests=("tests/unit/test_removal.py::test_S8_a_record_removed_by_compaction_is_still_a_duplicate",),
    ),
    Row(
        "delayed-retry", "Kafka", "a late message of an old attempt counts",
        "-w exactly-once --nemesis packet,partition,client", (_SIM,), by_hand=True,
    ),
    Row(
        "kill-under-load", "etcd #14370", "a kill under load loses acknowledged writes",
        "-w append --nemesis kill --rate 250 --time-limit 80", by_hand=True,
    ),
    Row(
        "applied-index-atomic", "etcd #13766", "applied index and data apart after a crash",
        tests=(_STEPS,),
    ),
    Row("kill-in-compaction", "etcd", "a kill while old data is removed", tests=(_STEPS,)),
    Row(
        "tail-resume", "etcd #15271", "a follower that resumes skips",
        "-w follow --nemesis kill,client", by_hand=True,
    ),
    Row(
        "slow-tailer", "etcd #17529", "a follower that is slow skips",
        "-w follow --nemesis packet,pause", by_hand=True,
    ),
    Row(
        "pause-leader-read", "etcd #20418", "a leader that stood still serves a stale read",
        "-w set --nemesis pause",
    ),
    Row(
        "one-dead-node", "TigerBeetle", "one dead or slow node raises the latency of all",
        tests=(
            "tests/chaos/test_nemeses.py"
            "::test_L3_a_slow_disk_is_felt_by_what_it_leads_and_nothing_else",
            "tests/cluster/test_slow_followers.py::test_L3_a_slow_link_to_one_follower_under_load",
            "tests/cluster/test_three_nodes.py"
            "::test_L1_S2_kill_of_the_leader_costs_no_client_more_than_3_s",
        ),
    ),
    Row(
        "slow-disk", "ours", "disks that are slow or hang break a promise",
        "-w append --nemesis slow-disk,kill",
        (
            "tests/chaos/test_nemeses.py"
            "::test_L1_a_leader_whose_disk_hangs_is_followed_by_another",
        ),
        by_hand=True,
    ),
    Row(
        "ranges", "ours", "a split, a merge or a move between an append and its retry",
        "-w exactly-once --nemesis range,kill",
    ),
    Row(
        "shared-group", "ours", "consumers of a group lose an item, do one twice, or stand",
        "-w group --nemesis kill,client --time-limit 30", by_hand=True,
    ),
    Row(
        "group-through-everything", "ours", "a group loses an item as ranges and leaders change",
        "-w group --nemesis kill,pause,partition,packet,range,client --nodes 5", by_hand=True,
    ),
    Row(
        "kafka-queue", "Redpanda 21.10", "Kafka clients lose, repeat or skip a record",
        "-w kafka --nemesis kill,partition,range",
    ),
    Row(
        "holes", "PySyncObj 0.3.17", "the holes of the library, one by one",
        tests=("tests/unit/test_raft_holes.py::test_violation_shows_when_open",),
    ),
    Row(
        "canary", "ours", "holes 1, 2 and 5 are open and nobody sees it",
        tests=("tests/sim/test_sim_canary.py::test_an_open_hole_is_found",),
    ),
]  # fmt: skip
