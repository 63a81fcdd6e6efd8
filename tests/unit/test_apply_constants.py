"""What applying an entry depends on beside the log: constants of the program.

All members of a group apply the same entries, and their versions may differ while a cluster is
upgraded. So these constants are the same in every version. A change of one of them, or of what a
known command does, needs a new kind of command, at which older members stop, or a feature level
(docs/design/levels.md): `test_range_level` has the rules of each level. The list is complete: a
test applies commands of every kind and follows the names that the functions read. Another test
finds a change of what commands do.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from applied_constants import Reads, ran
from applied_entries import ENTRIES, applied, begun
from fuzz_targets import range_commands
from sound_commands import SOUND, TOKEN

from lognode.partitions import commands as metadata_commands
from lognode.partitions.metadata import Metadata
from lognode.statemachine import commands

CONSTANTS = {
    # Read by ranges.
    "client.protocol.limits.key_bytes_max": 480,
    "client.protocol.limits.value_bytes_max": 1_048_576,
    "client.protocol.limits.values_bytes_max": 2_162_688,
    "client.protocol.limits.batch_records_max": 10_000,
    "client.protocol.limits.headers_max": 32,
    "client.protocol.limits.header_bytes_max": 4_096,
    "client.protocol.limits.kafka_partitions_max": 4_096,
    "client.protocol.limits.number_max": 9_223_372_036_854_775_807,
    "client.protocol.limits.restored_seq_max": 4_611_686_018_427_387_904,
    "client.protocol.limits.timestamp_max_ms": 253_402_300_799_999,
    "statemachine.restored.SEQ_BYTES": 8,
    "client.protocol.limits.frame_memory_max": 33_554_432,
    "client.protocol.limits.frame_array_max": 131_072,
    "client.protocol.limits.frame_nesting_max": 16,
    "client.protocol.limits.removal_keys_max": 32,
    "client.protocol.limits.producer_window_max": 524_288,
    "client.protocol.limits.producers_per_range_max": 100_000,
    "client.protocol.limits.remembered_numbers_max": 1_000_000,
    "client.protocol.limits.batch_weight_max": 8,
    "client.protocol.limits.floors_max": 100_000,
    "client.protocol.limits.lineage_spans_max": 4_096,
    "client.protocol.limits.leases_max": 64,
    "client.protocol.limits.leases_level_2_max": 256,
    "client.protocol.limits.lease_ms_max": 604_800_000,
    "client.protocol.limits.lease_id_chars_max": 128,
    "client.protocol.columns._FIELDS_MAX": 15,
    "client.protocol.limits.page_entries_max": 20_000,
    "client.protocol.packed._ANY_KEYS_MAX": 256,
    "client.protocol.packed.container_bytes": 256,
    "client.protocol.packed.element_bytes": 48,
    "client.protocol.packed.NO_FORM": (4_611_686_018_427_387_904, 0, 0),
    "client.protocol.records.EXPECT_ANY": -1,
    "client.protocol.records.FLAG_ATOMIC": 2,
    "client.protocol.records.FLAG_EACH": 4,
    "client.protocol.records.FLAG_ZSTD": 1,
    "client.protocol.records.VERSION": 1,
    "client.protocol.records._FIELDS": 14,
    "client.protocol.records._VALUES": 12,
    "statemachine.effects._DIGEST_BYTES": 16,
    "statemachine.range_state._FIRST_INDEX": 1,
    "statemachine.state_hash.HASH_BYTES": 16,
    "client.protocol.limits.cursors_max": 256,
    "client.protocol.limits.cursor_spans_max": 4_096,
    "client.protocol.limits.cursor_keys_max": 16_384,
    "client.protocol.limits.cursor_name_chars_max": 128,
    "client.protocol.limits.cursor_commit_spans_max": 64,
    "client.protocol.limits.cursor_commit_keys_max": 1_024,
    "client.protocol.limits.groups_max": 16,
    "client.protocol.limits.group_rows_max": 8_192,
    "client.protocol.limits.group_window_max": 1_048_576,
    "client.protocol.limits.group_keys_a_command_max": 1_024,
    "client.protocol.limits.group_decisions_max": 1_000,
    "client.protocol.limits.group_text_chars_max": 128,
    "client.protocol.levels.GROUPS_FROM": 4,
    "statemachine.cursor_commands._FIRST_SEQ": 1,
    "statemachine.groups.units._SEQ_BYTES": 8,
    "statemachine.groups.forms.PARK": 1,
    "statemachine.groups.forms.REJECT": 2,
    "statemachine.groups.forms.RETRY": 3,
    "statemachine.groups.forms.SKIP": 4,
    "statemachine.groups.forms.DEAD_LETTER": 5,
    "statemachine.groups.forms.RESET": 6,
    "statemachine.groups.forms.LOST": 7,
    "statemachine.groups.forms._STEP_FIELDS": 3,
    "statemachine.groups.forms._LETTER_FIELDS": 4,
    "statemachine.groups.forms._NOTE_FIELDS": 5,
    # Read by the metadata.
    "client.protocol.levels.LEVEL_MIN": 1,
    "client.protocol.levels.LEVELS_END": 2_147_483_648,
    "client.protocol.limits.principal_name_chars_max": 64,
    "client.protocol.levels.SCRAM_FROM": 6,
    "client.protocol.levels.COMPACT_AND_DELETE_FROM": 7,
    "client.protocol.limits.scram_keys_bytes": 192,
    "client.protocol.limits.token_scopes_max": 16,
    "client.protocol.principal.DEFAULT_CLASS": "default",
    "client.protocol.quotas.OF_CLASSES": ("connections", "follows", "producers"),
    "client.protocol.quotas.RATES": (
        "append_bytes",
        "append_records",
        "read_bytes",
        "read_records",
        "requests",
        "cpu_ms",
    ),
    "client.protocol.quotas.STORED": "stored_bytes",
    "client.protocol.scopes.ALL": "all",
    "client.protocol.scopes.VERBS": ("describe", "read", "append", "trim", "group", "admin"),
    "client.protocol.scopes._WHOLE_LOGS": {"describe", "admin", "group"},
    "partitions.grants.KEY_BYTES": 16,
    "partitions.grants._TAG_BYTES": 16,
    "partitions.metadata.NODE_STATES": ("JOINING", "ACTIVE", "DRAINING", "DEAD", "REMOVED"),
    "partitions.model.CONTROLLER_RANGE": 0,
    "partitions.policy.ALTERABLE": (
        "retention_ms",
        "retention_bytes",
        "cleanup",
        "delete_retention_ms",
        "snapshot_delay_ms",
        "split_bytes",
        "split_rate",
        "local_retention_bytes",
    ),
    "partitions.policy._RULES": (
        "replicas",
        "retention_ms",
        "retention_bytes",
        "cleanup",
        "delete_retention_ms",
        "snapshot_delay_ms",
        "split_bytes",
        "split_rate",
        "ranges_min",
        "kafka_partitions",
        "local_retention_bytes",
    ),
    # Refused below level 7.
    "client.protocol.cleanups.COMPACT_AND_DELETE": "compact,delete",
    "client.protocol.cleanups.CLEANUPS": ("delete", "compact", "compact,delete"),
    "partitions.policy._ABSENT_WHEN_NIL": ("split_bytes", "split_rate"),
    "partitions.producers.BLOCK": 1_024,
    "partitions.recovery.KIND": "recover",
    "statemachine.tails.TABLE": "tails",
    "partitions.tables.BUCKET_RECORDS": 32,
    "partitions.tokens._DIGEST_BYTES": 32,
    "partitions.tokens._KEPT_MS": 86_400_000,
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
    "client.protocol.limits.group_name_chars_max": 128,
    "client.protocol.limits.groups_per_log_max": 16,
    "client.protocol.limits.groups_of_cluster_max": 10_000,
    "client.protocol.levels.VIEWS_FROM": 4,
    "client.protocol.limits.views_per_log_max": 32,
    "client.protocol.limits.views_of_cluster_max": 10_000,
    "client.protocol.views.LIVE": "live",
    "client.protocol.groups.LATEST": "latest",
    "client.protocol.groups.TIME": "time",
    "client.protocol.groups.BY_KEY": "key",
    "client.protocol.groups.PARK": "park",
    "client.protocol.groups.DEAD_LETTER": "dead_letter:",
    "client.protocol.limits.tokens_bytes_max": 1_048_576,
    "client.protocol.limits.value_gain": 8,
    "client.protocol.limits.value_gain_level_1": 16,
    "client.protocol.limits.quota_max": 9_007_199_254_740_992,
    "client.protocol.limits.quotas_max": 1_000,
    "client.protocol.limits.quota_class_chars_max": 64,
    "client.protocol.limits.certificate_holder_chars_max": 128,
    "client.protocol.limits.split_bytes_default": 536_870_912,
    "client.protocol.limits.split_bytes_min": 1_048_576,
    "client.protocol.limits.split_rate_default": 20_000,
    "client.protocol.limits.split_rate_min": 100,
    "client.protocol.levels.CAUSES_FROM": 3,
    "client.protocol.levels.HIERARCHIES_FROM": 4,
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

ELSEWHERE = {
    "client.protocol.characters.PRINTABLE": "test_apply_unicode",
    "client.protocol.characters.UNFIT": "test_apply_unicode",
    "client.protocol.levels.LEVEL_MAX": "an older member stops before the entry",
    "client.protocol.limits.KIB": "1,024",
    "client.protocol.limits.MIB": "1,048,576",
    "statemachine.effects.VERSION": "the hash of an entry's effects, below",
}
"""Constants that another test pins, or that differ between versions as they should."""
NO_EFFECT = {
    "client.protocol.columns._LARGE": "which of two readers of columns, which agree",
    "client.protocol.columns.few_max": "which of two readers of columns, which agree",
    "client.protocol.packed._SHORT": "which of two readers of packed values, which agree",
    "client.protocol.records._COMPRESS_FROM_BYTES": "what writers of batches compress",
    "client.protocol.records._HEAD": "a text of errors",
    "partitions.metadata_state._BUCKETS_MIN": "when old containers are counted",
    "statemachine.effects._BUFFER_BYTES": "how much is hashed at a time",
    "statemachine.late_numbers._GROUP_BITS": "the groups in which memory holds numbers",
    "statemachine.batch_heads._HEAD": "which batches a read passes without a look",
    "statemachine.memtable._BYTES_BYTES": "an estimate of memory, for flushes",
    "statemachine.number_blocks._BLOCK": "the blocks in which memory holds numbers",
    "statemachine.number_blocks._RUN": "the blocks in which memory holds numbers",
    "statemachine.producers._SECRET": "the places of numbers in a set of this process",
    "statemachine.newest_positions._PLACES_MIN": "an index in memory",
    "statemachine.newest_positions._SHARE": "an index in memory",
    "statemachine.newest_table._SLOTS_EACH": "an index in memory",
    "statemachine.newest_table._SLOTS_MIN": "an index in memory",
    "statemachine.newest_table._SLOT_BYTES": "an index in memory",
    "statemachine.seq_index._HASH_BYTES": "an index in memory",
    "statemachine.seq_index._MANY": "an index in memory",
    "statemachine.seq_index._TAIL": "an index in memory",
}
"""Constants that apply reads, and that change neither the state nor the answer."""
CODES = ("partitions.commands", "statemachine.commands", "partitions.reasons")
"""Modules with names of formats, which `test_command_tables` and `test_reasons` keep."""


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


def _apply_metadata() -> None:
    everything = [[["describe", "read", "append", "trim", "group", "admin"], "*", b"*"]]
    first = {**TOKEN, "id": "1" * 16, "digest": b"1" * 32, "scopes": everything}
    for tokens in ((), (first, TOKEN)):
        metadata = Metadata()
        begin: list[tuple[str, dict[str, Any]]] = [
            (op, {**SOUND[op], "node": 1})
            for op in (metadata_commands.FOUND, metadata_commands.REGISTER)
        ]
        begin += [(metadata_commands.CREATE_TOKEN, token) for token in tokens]
        for index, (op, body) in enumerate([*begin, *SOUND.items()], 1):
            command = metadata_commands.decode(metadata_commands.encode({"op": op, **body}))
            assert command is not None
            metadata.apply(index, 1, command)


def test_x2_22_every_constant_that_apply_reads_is_pinned(tmp_path: Path) -> None:
    """The list was incomplete: for how long an expired token stays was not in it."""
    rows = [row for row in range_commands() if row[0] != commands.SEAL]
    entries = [commands.encode(kind, 1 << 40, payload) for kind, payload in rows]
    functions = ran(lambda: applied(begun(tmp_path), [*ENTRIES[:-1], *entries, ENTRIES[-1]]))
    functions |= ran(_apply_metadata)
    assert len(functions) > 300
    reads = Reads()
    for code, module in functions.items():
        reads.of_code(code, module)
    found = {name for name in reads.constants if name.rpartition(".")[0] not in CODES}
    assert {"partitions.tokens._KEPT_MS", "client.protocol.limits.tokens_max"} <= found
    missing = found - CONSTANTS.keys() - ELSEWHERE.keys() - NO_EFFECT.keys()
    assert not missing, "pin them, with a reason if another value has no effect"
