"""What each field of requests about logs and their Kafka partitions means; see `meanings`."""

from collections.abc import Mapping
from typing import Final

from . import limits

LOGS: Final[Mapping[str, Mapping[str, str]]] = {
    "create_log": {
        "creation": "Random bytes, drawn for each log and sent with every attempt: a repetition by "
        "the same principal gets the answer of the first attempt. nil and missing: a repetition "
        "gets LOG_EXISTS.",
        "name": "The name of the log, without blanks. The part up to the first `/` names the "
        "tenant. `_audit` and `_usage` are logs of the cluster.",
        "ranges": "How many ranges of equal width the log begins with; nil and no `split_at`: one.",
        "split_at": "The first key of each range but the first, ascending.",
        "replicas": "How many replicas each range has; nil: 3. With fewer nodes a range has as "
        "many as there are, and grows.",
        "retention_ms": "Entries older than this may go, 1 at least; nil and missing: none go.",
        "retention_bytes": "Of each range so many bytes of segments stay at least, and older ones "
        "may go, 1 at least; nil and missing: none go.",
        "cleanup": "`delete`: old entries go. `compact`: each key keeps its last entry for ever, "
        "which excludes `retention_ms`, `retention_bytes` and `snapshot_delay_ms`. "
        "`compact,delete`: each key keeps its last entry until `retention_ms` or `retention_bytes` "
        "remove it, which excludes `snapshot_delay_ms`, and needs feature level 7. nil and "
        "missing: `delete`.",
        "delete_retention_ms": "With compaction alone: how long tombstones stay; "
        "nil and missing: a day.",
        "snapshot_delay_ms": "What a key had before a logical snapshot goes so long after it; nil "
        "and missing: it stays.",
        "split_bytes": "A range with more bytes of segments is split, "
        f"{limits.split_bytes_min:,} at least; nil: never; missing: "
        f"{limits.split_bytes_default:,}.",
        "split_rate": "A range with more appends and reads a second is split, "
        f"{limits.split_rate_min:,} at least; nil: never; missing: "
        f"{limits.split_rate_default:,}.",
        "local_retention_bytes": "Of each range, a node with a tier keeps about so many bytes of "
        "segments on its own disk, the newest, and older ones in the tier only, 1 at least; nil "
        "and missing: all segments are on the disks. Excludes compaction. Needs feature "
        "level 4.",
        "hierarchy": "The separator of the levels of keys, for ever; nil and missing: none. Needs "
        "feature level 4.",
        "kafka_partitions": "The log has so many Kafka partitions, for ever; missing: none. The "
        "first two bytes of each key are the number of a partition, and ranges begin at such two "
        "bytes. Needs feature level 4.",
        "> kafka_partitions": "How many Kafka partitions the log has; nil: the log has none.",
        "exist_ok": "Answer with the log that exists in place of LOG_EXISTS.",
        "> log": "The id of the log.",
        "> created": "Whether this request, or the one that it repeats, has created the log.",
    },
    "delete_log": {
        "id": "The id of the log, for a repetition: a log that has the name since is left alone, "
        "and LOG_NOT_FOUND tells its id; nil: whichever log has the name.",
    },
    "alter_log": {
        "changes": "The rules to change: `retention_ms`, `retention_bytes`, `cleanup`, "
        "`delete_retention_ms`, `snapshot_delay_ms`, `split_bytes`, `split_rate`, "
        "`local_retention_bytes`. nil takes a rule away.",
        "> log": "The id of the log.",
    },
    "tails": {
        "above": "The answer tells of partitions with an entry of this seq or a higher one; 0: of "
        "all partitions that ever had an entry.",
        "wait_ms": "How long the member waits for such an entry; 0: the answer comes at once.",
        "> rows": "Partitions in order, with where their entries begin and end.",
        "> rows[].partition": "The number of the partition: the first two bytes of its keys.",
        "> rows[].begin": "Entries below this seq were removed; 0: none was.",
        "> rows[].end": "One more than the seq of the last entry of the partition.",
        "> next": "The seq that the next entry of the range gets: the `above` of the next request.",
    },
    "trim_partition": {
        "start_key": "The number of the partition, in two bytes.",
        "end_key": "The number of the next partition, in two bytes.",
        "before": "Entries of the partition below this seq go.",
        "> begin": "Entries below this seq were removed; 0: none was.",
    },
}
