"""Every limit of lognode; each name ends with the unit. Every queue, window and retry has its bound
here.

The limits that affect a peer or a client are part of the protocol: raising one is compatible,
lowering one is not.
"""

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20

# Records and batches.
key_bytes_max: Final = 480
"""An LMDB key has at most 511 bytes; the rest is room for bytes that a later index adds to the
key."""
value_bytes_max: Final = MIB
headers_max: Final = 32
header_bytes_max: Final = 4 * KIB
"""Names and values of all headers of one record, together."""
batch_bytes_max: Final = MIB
"""Keys, values and headers of a batch, uncompressed; a single larger record travels alone."""
values_bytes_max: Final = batch_bytes_max + value_bytes_max + 64 * KIB
"""Bytes of the packed and uncompressed values of a batch, and of all batches of one append
request together."""
batch_records_max: Final = 10_000
request_records_max: Final = batch_records_max
restored_seq_max: Final = 1 << 62
"""The highest `next_seq` of a restore: later entries have room for as many seqs again."""
restored_rows_max: Final = 256
"""Batches of one request that restores entries: apply decodes all of them in one step."""
"""Records of all batches of one append request: the answer may list a seq for each record."""
removal_keys_max: Final = 32
"""Keys or spans of one trim or delete, which is applied in one step."""
log_name_bytes_max: Final = 128
kafka_partitions_max: Final = 4_096
"""Kafka partitions of a log: two bytes in front of its keys. A range has whole partitions."""
kafka_wait_ms_max: Final = 30_000
"""How long a member waits for news of partitions before it answers."""
producer_name_bytes_max: Final = 256
number_max: Final = (1 << 63) - 1
"""The largest integer in a request, a command or a record. The sum and the difference of two such
numbers still fit the 64 bits that msgpack can carry."""
timestamp_max_ms: Final = 253_402_300_799_999
"""The end of the year 9999, in Unix time."""
trace_parent_chars_max: Final = 64
cluster_id_bytes_max: Final = 64
boot_max: Final = (1 << 31) - 1
"""Starts of one data directory: one a second for 68 years. Liveness shifts the boot number by 32
bits, and the result has 63 bits (`raft.liveness`)."""
boot_jump_max: Final = 1 << 24
"""Starts of a node that another node missed. A start takes at least half a second, so a node
would have to crash in a loop for 97 days, unheard."""
generation_jump_max: Final = 1 << 24
"""Generations of a range that a node missed. A change of generation takes about a second: half a
year of changes without a pause."""
term_jump_max: Final = 1 << 24
"""Terms of a group that a member missed. A term takes an election, and an election timeout of at
least 0.75 s: 145 days of elections without a pause."""

# Tokens.
tokens_max: Final = 4_096
"""Tokens of a cluster; an expired token counts until a later token takes its place."""
invites_max: Final = 256
"""Unused invitations of new nodes."""
founding_ms: Final = 3_600 * 1_000
"""How long after the founding of a cluster its founders may join without an invitation."""
inviter_bytes_max: Final = 512
"""The name of the principal that made an invitation."""
invite_expiry_ms_max: Final = 7 * 24 * 3_600 * 1_000
"""The longest validity of an invitation."""
tokens_bytes_max: Final = MIB
"""All tokens of a cluster, as every node stores them."""
token_scopes_max: Final = 16
scram_keys_bytes: Final = 192
"""The keys of a token for SCRAM: two of 32 bytes, and two of 64."""
tokens_page_max: Final = 500
tokens_page_bytes: Final = 256 * KIB
"""Bytes of the tokens in one answer, not counting the last token."""
token_bytes_max: Final = 16 * KIB
"""One token on the wire: a token with 16 of the longest scopes has 11.1 KiB."""
principal_name_chars_max: Final = 64
quota_class_chars_max: Final = 64
certificate_holder_chars_max: Final = 128
"""`client NAME`, `name COMMON-NAME` or `key FINGERPRINT`."""

# Raft and the wire.
entry_bytes_max: Final = 4 * MIB
frame_bytes_max: Final = 9 * MIB
"""At least 2 x entry_bytes_max + 64 KiB, so that any append of one entry fits (x23)."""
frame_nesting_max: Final = 16
frame_array_max: Final = 1 << 17
"""Elements of one array or map."""
rows_max: Final = 1 << 16
"""Rows of one list in a message between nodes."""
raft_items_max: Final = 1_024
"""Raft messages in one frame; also rounds of reads, and answers to rounds. The receiver handles
a frame in one turn of the loop, so a node sends at most 129 of all three together (see
`node.links.peers`)."""
raft_parts_max: Final = 4_096
"""Entries of all appends in one frame, plus the groups of its rounds of reads and the numbers of
its answers to rounds. The receiver handles a frame in one turn of the loop, in which 4,096
entries take 14 ms. A node sends at most 1,024 entries in an append and 3,100 parts in a frame."""
raft_round_reads_max: Final = 2_048
"""Groups in one round of reads; the next round asks about the others."""
commands_per_principal_max: Final = 32
"""Metadata changes of one principal that are under way at a node."""
commands_under_way_max: Final = 128
"""Metadata changes of all principals that are under way at a node: far fewer than the
`requests_in_flight_max` of the link that forwards them to the controller's leader."""
told_rows_max: Final = 1 << 13
"""Rows of one list in a node's report on its ranges to the controller's leader, except the list
of leaders. The node reports the other rows later. The receiver decodes and checks a report in one
turn of the loop, in which 16,384 rows took 20 ms, and more than 50 ms on a slower machine."""
told_reason_bytes_max: Final = 512
"""Bytes of the text with which a node reports why a replica is damaged or halted. The node's own
log has the whole text."""
raft_left_max: Final = 1_024
"""Groups that a ping reports as left; a node sends at most 256 (see `raft.liveness`)."""
frame_memory_max: Final = 32 * MIB
"""Memory of the arrays and maps of one frame with their elements, besides the bytes on the wire.
One byte on the wire may take 72 bytes of memory. The limit allows 131,072 small arrays and maps."""
handshake_memory_max: Final = 16 * KIB
"""`frame_memory_max` before the other side has proved its identity."""
handshake_bytes_max: Final = 64 * KIB
"""The largest frame before the other side has proved its identity."""
requests_in_flight_max: Final = 1_024
"""Requests of one connection; above this number the reader stops reading."""
requests_in_flight_bytes_max: Final = 64 * MIB
"""Bytes of the requests that a connection has read and not answered; above them the reader
stops, too."""
send_buffer_bytes_max: Final = 4 * MIB
"""Unsent bytes of a connection at which its requests wait, on either side."""
connections_max: Final = 4_096
"""Client connections of one node, if it may open enough files."""
taken_over_max: Final = 1_024
"""Groups that a leader asks another member to lead in one request."""
kafka_connections_max: Final = 8_192
"""Connections of Kafka clients, and those of a node's own clients that serve them, if the node may
open enough files."""
connections_per_host_share: Final = 7 / 8
"""The share of `connections_max` that one host may have; the last eighth is for other hosts."""
handshakes_max: Final = 256
"""Connections of one listener in their handshake; the oldest is closed for a new one."""
idle_timeout_s: Final = 600.0
"""A client's connection without a request for this time is closed, unless the node is configured
otherwise. The client connects again at its next call."""
frame_window_s: Final = 5.0
frame_bytes_per_s_min: Final = 16 * KIB
"""The connection of an incomplete frame ends when the frame grows more slowly in two consecutive
windows."""
incomplete_frames_bytes_max: Final = 256 * MIB
"""Incomplete frames of all connections of a listener together; above this the oldest gives way."""
peer_connections_max: Final = 4
"""Connections from one known node: its link, and connections for files."""
stranger_connections_max: Final = 16
"""Connections from all nodes that the metadata does not know yet, together."""
http_connections_max: Final = 64
http_first_request_s: Final = 10.0
http_next_request_s: Final = 30.0
"""An HTTP connection is closed when its next request does not begin in this time."""
http_head_bytes_max: Final = 32 * KIB
"""The address and all headers of one request over HTTP."""
http_streams: Final = 256
"""Default of the event streams over HTTP that a node serves at a time."""
http_streams_max: Final = 1_024
"""The largest setting of `http_streams`."""
door_requests_max: Final = 64
"""Requests to REST that are under way at a node, not counting event streams."""
door_dials_max: Final = 256
"""Connections to nodes that the clients of REST may have together."""

# Memory of a node's connections (see `budget`). Nodes of the cluster have separate budgets.
answers_connection_bytes_max: Final = 16 * MIB
"""Answers to one connection that are being built or that the kernel has not taken yet."""
answers_principal_bytes_max: Final = 64 * MIB
answers_node_bytes_max: Final = 256 * MIB
requests_principal_bytes_max: Final = 128 * MIB
"""Requests of one principal that are being read, are waiting or are being served."""
requests_node_bytes_max: Final = 256 * MIB
request_overhead_bytes: Final = 4 * KIB
"""The memory of a request besides its own bytes, as measured for a waiting read."""
answer_small_bytes: Final = 64 * KIB
"""A smaller answer is charged together with its request, and does not wait for room."""
unsent_free_bytes: Final = 64 * KIB
"""Unsent bytes with which a connection may always continue, however little room is left."""
frame_free_bytes: Final = 16 * KIB
"""Bytes of an incomplete frame that a connection may hold without asking for room."""
reader_progress_bytes: Final = 256 * KIB
"""A reader makes progress when it takes this much of the waiting bytes, or all of them."""
reader_patience_s: Final = 30.0
"""A reader without progress for this time is closed."""
reader_patience_pressed_s: Final = 5.0
"""`reader_patience_s` when others have waited this long for the room that the reader occupies."""

# Producers.
producer_window_max: Final = 524_288
"""Numbers from `low` on that a range remembers; `submit` waits at the bound, and a range refuses
beyond it."""
producer_requests_in_flight_max: Final = 5
"""Requests per range and producer."""
request_batches_max: Final = 256
"""Batches of one append request, with at most `batch_bytes_max` together; each has its own
outcome."""
ordered_batches_max: Final = 16
"""A range applies the batches of a request with up to so many batches behind all earlier batches of
the same producers. In a larger request, this holds for the producer of the first batch."""
producers_per_range_max: Final = 100_000
remembered_numbers_max: Final = 1_000_000
"""Record numbers of a range that were applied and not settled by their producers; above this the
range refuses producers with many of them, see `statemachine.producers`."""
batch_weight_max: Final = 8
"""What a batch of consecutive numbers counts at most against `remembered_numbers_max`, from level 5
on: such a batch takes little memory, however many records it has."""
producers_of_principal_max: Final = 50_000
"""Producers of one principal in a range, when clients are known by name; the rest is for others."""
producers_named_max: Final = 100_000
"""Producer names of the cluster."""
producers_named_per_principal_max: Final = 50_000
producer_names_bytes_max: Final = 16 * MIB
producer_names_bytes_per_principal_max: Final = 8 * MIB
producer_grant_bytes: Final = 28
creation_bytes: Final = 16
"""Random bytes that a client draws for each `create_log` call, to recognise its attempts."""
producer_name_expiry_ms: Final = 7 * 24 * 3_600 * 1_000
"""A name that is not opened for this time is forgotten: its next opening still gets the same id
and a higher epoch."""
producer_unacked_bytes_default: Final = 64 * MIB
producer_expiry_ms: Final = 24 * 3_600 * 1_000

# Removal, per range. All replicas refuse the same commands by these limits, at feature level 1; see
# `statemachine.rules` for later levels.
floors_max: Final = 100_000
"""Keys with a floor above retention's floor, from trims and deletes, and the floors that leases
keep: their rows stay in memory."""
lineage_spans_max: Final = 4_096
"""Spans of keys that have their own floor or compaction mark."""
leases_max: Final = 64
leases_level_2_max: Final = 256
"""Leases from feature level 2 on: enough for 16 principals that each hold as many as they may."""
value_gain: Final = 8
"""Compressed values are kept where they save one part in so many of the bytes, as in LevelDB."""
value_gain_level_1: Final = 16
"""The same before feature level 6."""
leases_per_principal_max: Final = 16
"""Leases of one principal in a range, when clients are known by name; the rest is for others."""
lease_id_chars_max: Final = 128
timeout_ms_max: Final = 7 * 24 * 3_600 * 1_000
"""The timeout of a request. A node waits for a read for at most 60 s."""
lease_ms_max: Final = 7 * 24 * 3_600 * 1_000
"""A lease ends at the latest after this time, unless it is renewed."""

# Cursors, per range, from feature level 4 on. All replicas refuse the same commands by these.
cursors_max: Final = 256
cursor_spans_max: Final = 4_096
"""Spans of keys in which a cursor has a position, over all cursors."""
cursor_keys_max: Final = 16_384
"""Keys with a position of their own above that of their span, over all cursors: their rows stay in
memory."""
cursor_name_chars_max: Final = 128
cursor_commit_spans_max: Final = 64
"""Spans in one request that moves a cursor."""
cursor_commit_keys_max: Final = 1_024
"""Keys in one request that moves a cursor."""
cursor_page_rows: Final = 1_000
"""Spans, and as many keys, in a page of a cursor's positions."""
# Consumer groups, per range. All replicas refuse the same commands by these limits.
groups_max: Final = 16
"""Groups with state in a range, from feature level 4 on."""
group_rows_max: Final = 8_192
"""Keys of a group with a row: in flight with failed deliveries, parked, or done above the floor."""
group_window_max: Final = 1_048_576
"""Seqs between the floor of a group and the newest acknowledged entry."""
group_keys_a_command_max: Final = 1_024
"""Keys that one command of a group names."""
group_append_keys_max: Final = 512
"""Keys that a batch acknowledges, which a command names together with the batch."""
group_decisions_max: Final = 1_000
"""Decisions that a group remembers in each range, the newest ones."""
group_text_chars_max: Final = 128
"""Characters of an error, of a reason or of a principal's name in the state of a group."""
group_text_bytes: Final = 4 * group_text_chars_max
"""The most bytes of such a text in UTF-8."""
group_reset_spans_max: Final = 64
"""Spans of keys in one reset of a group."""

# Consumer groups: names, and what a leader keeps in memory.
group_name_chars_max: Final = 128
groups_per_log_max: Final = groups_max
"""Groups of a log: each of its ranges may hold the state of all of them."""
groups_of_cluster_max: Final = 10_000
"""Groups of all logs: a record has at most 3 KiB."""
group_consumers_max: Final = 1_024
"""Consumers of a group in a range; another consumer is refused as OVERLOADED."""
group_take_keys_max: Final = 1_024
"""Keys in one answer with batches."""
group_holds_max: Final = 4_096
"""Keys of a range that a consumer may have at a time."""
group_wait_ms_max: Final = 30_000
"""How long a leader waits for a key before it answers without a batch."""
group_delay_ms_max: Final = 7 * 24 * 3_600 * 1_000
"""The longest delay after which a batch that was given back is delivered again."""
group_lease_ms_min: Final = 1_000
group_lease_ms_max: Final = 3_600 * 1_000
group_lease_ms_default: Final = 30_000
group_deliveries_max: Final = 1_000
"""The highest `max_deliveries` of a group."""
group_deliveries_default: Final = 5
group_page_rows: Final = 1_000
"""Keys or decisions in a page."""

# Views: names that appends can wait for.
view_name_chars_max: Final = 128
views_per_log_max: Final = 32
views_of_cluster_max: Final = 10_000
view_waits_for_max: Final = 16
"""Views that one append waits for."""
view_wait_keys_max: Final = 1_024
"""Keys in one wait for views."""
view_wait_ms_max: Final = 30_000
"""How long a leader waits for views."""
view_waits_per_connection_max: Final = 256
"""Waits for views of one connection; another wait is refused as OVERLOADED."""
view_waits_max: Final = 4_096
"""Waits for views on a node."""
view_waited_keys_max: Final = 65_536
"""Keys of all waits for views on a node, each counted once for each view."""

# Memory of a node.
memtable_bytes_max: Final = 64 * MIB
memtable_hard_bytes_max: Final = 256 * MIB
"""Memtables of a range, frozen memtables included. Above this the leader refuses appends:
segments cannot be built, or not as fast as entries arrive."""
frozen_scarce_bytes: Final = 96 * MIB
"""Frozen memtables of a range: two are waiting. Above this the builder has priority."""
memtable_age_s: Final = 600.0
memtable_cold_s: Final = 30.0
memtable_cold_bytes: Final = 4 * MIB
"""A memtable of at least this size that has hardly grown for `memtable_cold_s` is frozen."""
memtables_bytes_max: Final = 512 * MIB
"""Memtables of a node, frozen ones included; above this the largest are frozen, at any size."""
memtables_hard_bytes_max: Final = 1024 * MIB
"""Memtables of a node: above this it refuses appends."""
append_light_bytes: Final = MIB
"""A principal whose recent appends (their count halves every second) are within this may exceed the
hard bounds by a quarter: other principals caused the lack of segments."""
append_queue_bytes_max: Final = 32 * MIB
"""Uncommitted bytes of a principal's appends in a range, appends under way included; above this
the answer is OVERLOADED."""
append_queues_bytes_max: Final = 64 * MIB
"""`append_queue_bytes_max` for all principals together."""
proposed_bytes_max: Final = 2 * MIB
"""Bytes of a range's appends that are under way to the members, not counting one entry. The
other appends wait, and principals share the next round."""
proposed_scarce_bytes_max: Final = 256 * KIB
"""`proposed_bytes_max` while segments are built more slowly than entries arrive, or while
several principals append to the range."""
proposed_shared_entry_bytes_max: Final = 1 * MIB
"""One entry while several principals append to the range."""
log_cache_bytes_max: Final = 32 * MIB
"""The newest Raft entries that a group keeps in memory; older ones are read from the WAL."""
group_window_bytes_max: Final = 8 * MIB
"""Unacknowledged bytes of one group sent to a peer, above which the guard hides the peer."""
peer_window_bytes_max: Final = 32 * MIB
"""Bytes of all groups queued for one peer, above which the guard hides the peer from each group."""
block_cache_bytes_max: Final = 64 * MIB
"""Decoded blocks of segments, of all ranges of a node."""
column_cache_bytes_max: Final = 256 * MIB
"""Unpacked values of batches in memtables. A key's entries may lie in as many batches as there
are entries, each up to a MiB: with a smaller cache than the entries read together, every read
unpacks them all again."""
follows_max: Final = 65_536
"""Follows of a node."""
follows_per_connection_max: Final = 1_000
"""Fewer than the requests in flight, so that a connection full of follows still answers."""
follow_keys_max: Final = 10_000
"""Keys of one follow request; a client follows more keys with several requests. With the longest
keys a request has 5 MB."""
followed_keys_max: Final = 500_000
"""Keys of all follows of a node; each takes about 200 bytes."""
follow_credit_bytes_max: Final = 4 * MIB

# Pages.
page_bytes_default: Final = 256 * KIB
page_bytes_max: Final = 4 * MIB
page_entries_max: Final = 20_000
keys_page_max: Final = 10_000
patterns_max: Final = 16
"""Patterns in a list. This and the next four limits keep it under 5 ms to make the expression of a
list, and to match a thousand of the longest keys."""
patterns_bytes_max: Final = 1_024
"""Bytes of all patterns of a list together."""
pattern_levels_max: Final = 16
patterns_levels_max: Final = 256
"""Levels of all patterns of a list together, when the separator has one byte."""
patterns_levels_long_max: Final = 48
"""The same for a longer separator, at which a match takes several times as long."""
separator_bytes_max: Final = 8
"""Bytes of the separator of a log's hierarchy."""
export_bands_max: Final = 1_024
"""Bands of seqs in the position of an export."""
layout_rows_max: Final = 8_192
producers_page_max: Final = 1_000
ranges_page_max: Final = 500
"""Descriptors of ranges in a page; fewer when their keys are long."""
logs_page_max: Final = 500
health_reasons_max: Final = 1_000
"""Reasons in one answer about health; a last line counts the others."""
status_page_max: Final = 500
"""Rows of all sections of the status, together."""

# Files.
wal_file_bytes: Final = 64 * MIB
"""Default size of a WAL file; `wal_file_bytes_min` and `wal_file_bytes_max` bound the setting."""
wal_rewrite_bytes_max: Final = 4 * MIB
"""Entries of one group that one round rewrites to release old WAL files."""
wal_file_bytes_min: Final = 64 * KIB
wal_file_bytes_max: Final = 1 << 30
segment_block_bytes: Final = 32 * KIB
segment_unpacked_bytes_max: Final = 256 * MIB
"""Uncompressed keys and values at which a memtable is flushed: the builder holds them all."""
builder_patience_s: Final = 60.0
builder_bytes_per_s: Final = 256 * KIB
"""Bytes of batches as received. A builder process that is slower than this, and late beyond its
patience, hangs: it is killed, and the segment is built again."""
meta_map_bytes: Final = 16 << 30
base_bytes_max: Final = 512 * MIB
"""Manifest and tables of a range as a peer sends them. Floors have at most 50 MB, and a producer
with a full window has 10 MB."""
base_chunk_bytes: Final = 4 * MIB
"""The largest piece of a segment file in a base transfer."""
tier_bytes_per_s: Final = 32 * MIB
"""Uploads cost about 4 s of processor time a GB: at this rate an eighth of a core."""
disk_reserve_bytes: Final = 512 * MIB
"""Default free space below which a node refuses appends. At least two WAL files."""
disk_reserve_bytes_max: Final = 1 << 50
scrub_bytes_per_s: Final = 4 * MIB
"""Default rate at which a node reads and hashes segment files again."""
transfer_bytes_per_s: Final = 64 * MIB
"""Default rate at which a node sends segment files, and the same rate for receiving."""

# The metadata between nodes.
image_page_bytes: Final = 256 * KIB
"""Buckets of an image in one answer, plus one bucket."""
image_page_buckets_max: Final = 8_192
bucket_bytes_max: Final = tokens_bytes_max + 64 * KIB
"""All tokens form one bucket."""
image_bytes_max: Final = 256 * MIB
"""All buckets together."""

# Placement.
ranges_per_log_max: Final = 4_096
split_bytes_default: Final = 512 * MIB
"""Bytes of segments above which a range is split, unless the log's policy sets another limit."""
split_bytes_min: Final = MIB
split_rate_default: Final = 20_000
"""Appended records and answered reads a second: about a fifth of a node's capacity."""
split_rate_min: Final = 100
"""Below this rate there are too few requests to sample."""
lead_rests_s: Final = 600.0
"""How long a range keeps the leader that an operator or a balance chose."""
logs_max: Final = 10_000
"""Logs of a cluster."""
ranges_max: Final = 50_000
"""Ranges of a cluster, including the ranges that splits under way will create."""
replicas_per_node_max: Final = 5_000
"""New ranges are refused when an even spread over the possible nodes exceeds this number. A
replica takes about 30 KB; with more replicas the groups of a node on one core have no time for
elections."""
replicas_max: Final = 7
nodes_max: Final = 1_024
host_name_chars_max: Final = 253
host_label_chars_max: Final = 63
"""A label of a DNS name, by RFC 1035 (2.3.4)."""
address_bytes_max: Final = 300
"""`host:port` with a host name of at most 253 bytes."""
zone_bytes_max: Final = 128

# Quotas.
quotas_max: Final = 1_000
"""Classes and tenants with a quota."""
quota_max: Final = 1 << 53
"""The largest limit of a quota."""
spenders_max: Final = 10_000
"""Principals whose use a node remembers, and tenants unless more tenants have logs. More than
`connections_max`."""
usage_rows_max: Final = 1_000
"""Principals whose use a node reports: those that used the most of its time."""
answer_reserved_bytes: Final = 64 * KIB
"""Bytes that a read takes from its quota before the size of its answer is known."""

# Clients.
client_retry_backoff_first_s: Final = 0.05
client_retry_backoff_max_s: Final = 1.0
