"""What applying an entry depends on beside the log: constants of the program.

All members of a group apply the same entries, and their versions may differ while a cluster is
upgraded. So these constants are the same in every version. A change of one of them, or of what a
known command does, needs a new kind of command, at which older members stop, or a feature level
(docs/design/levels.md): `test_range_level` has the rules of each level. The second test finds a
change of what commands do.
"""

from importlib import import_module
from pathlib import Path

import pytest
from applied_entries import ENTRIES, applied, begun

CONSTANTS = {
    # Read by ranges.
    "client.protocol.limits.key_bytes_max": 480,
    "client.protocol.limits.value_bytes_max": 1_048_576,
    "client.protocol.limits.values_bytes_max": 2_162_688,
    "client.protocol.limits.batch_records_max": 10_000,
    "client.protocol.limits.headers_max": 32,
    "client.protocol.limits.header_bytes_max": 4_096,
    "client.protocol.limits.number_max": 9_223_372_036_854_775_807,
    "client.protocol.limits.frame_memory_max": 33_554_432,
    "client.protocol.limits.frame_array_max": 131_072,
    "client.protocol.limits.frame_nesting_max": 16,
    "client.protocol.limits.removal_keys_max": 32,
    "client.protocol.limits.producer_window_max": 524_288,
    "client.protocol.limits.producers_per_range_max": 100_000,
    "client.protocol.limits.remembered_numbers_max": 1_000_000,
    "client.protocol.limits.floors_max": 100_000,
    "client.protocol.limits.lineage_spans_max": 4_096,
    "client.protocol.limits.leases_max": 64,
    "client.protocol.limits.leases_level_2_max": 256,
    "client.protocol.limits.lease_ms_max": 604_800_000,
    "client.protocol.limits.lease_id_chars_max": 128,
    # Read by the metadata.
    "client.protocol.limits.nodes_max": 1_024,
    "client.protocol.limits.replicas_max": 7,
    "client.protocol.limits.logs_max": 10_000,
    "client.protocol.limits.ranges_max": 50_000,
    "client.protocol.limits.ranges_per_log_max": 4_096,
    "client.protocol.limits.replicas_per_node_max": 5_000,
    "client.protocol.limits.log_name_bytes_max": 128,
    "client.protocol.limits.boot_jump_max": 16_777_216,
    "client.protocol.limits.cluster_id_bytes_max": 64,
    "client.protocol.limits.founding_ms": 3_600_000,
    "client.protocol.limits.invites_max": 256,
    "client.protocol.limits.invite_expiry_ms_max": 604_800_000,
    "client.protocol.limits.producers_named_max": 100_000,
    "client.protocol.limits.producers_named_per_principal_max": 50_000,
    "client.protocol.limits.producer_name_bytes_max": 256,
    "client.protocol.limits.producer_names_bytes_max": 16_777_216,
    "client.protocol.limits.producer_names_bytes_per_principal_max": 8_388_608,
    "client.protocol.limits.producer_name_expiry_ms": 604_800_000,
    "client.protocol.limits.tokens_max": 4_096,
    "client.protocol.limits.tokens_bytes_max": 1_048_576,
    "client.protocol.limits.quota_max": 9_007_199_254_740_992,
    "client.protocol.limits.quotas_max": 1_000,
    "client.protocol.limits.quota_class_chars_max": 64,
    "client.protocol.limits.certificate_holder_chars_max": 128,
    "client.protocol.limits.split_bytes_default": 536_870_912,
    "client.protocol.limits.split_bytes_min": 1_048_576,
    "client.protocol.limits.split_rate_default": 20_000,
    "client.protocol.limits.split_rate_min": 100,
    "client.protocol.levels.CAUSES_FROM": 3,
    "statemachine.producer_row.SETTLED_KEPT": 64,
    "statemachine.producers._SHARES": 64,
    "statemachine.producers._FEW": 128,
    "statemachine.removal._SWEPT_BY_KEYS": 128,
    "statemachine.removal._SWEPT_BY_SPANS": 4_096,
    "partitions.generation_commands.REASON_CHARS_MAX": 500,
    "partitions.locks.OPERATIONS_MAX": 4,
    "partitions.recovery.SEQS_LEFT_OUT": 1_099_511_627_776,
    "partitions.producers.FIRST_NAMED_ID": 4_611_686_018_427_387_904,
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_that_apply_reads_is_as_in_every_version(name: str) -> None:
    module, _, constant = name.rpartition(".")
    found = getattr(import_module(f"lognode.{module}"), constant)
    assert found == CONSTANTS[name], "members of another version would apply entries differently"


def test_known_commands_do_what_they_do_in_every_version(tmp_path: Path) -> None:
    """Another hash says that commands have another meaning, which members of other versions do not
    know: that is a bug. Only where the hash covers something else, raise `effects.VERSION`, and
    write down the new hash."""
    assert applied(begun(tmp_path)).hex() == "01000000000000000132e568e1e67ac223d4df88324a090df5"
    assert len(ENTRIES) == 9
