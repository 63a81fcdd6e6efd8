"""Every limit of lognode, with its unit last; a queue, window or retry has its bound here.

Limits that a peer or a client can run into are part of the protocol: raising one is compatible,
lowering one is not.
"""

from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20

# Records and batches.
key_bytes_max: Final = 480
"""An LMDB key ends at 511 bytes; the rest is room for what a later index puts beside the key."""
value_bytes_max: Final = MIB
headers_max: Final = 32
header_bytes_max: Final = 4 * KIB
"""Names and values of all headers of one record together."""
batch_bytes_max: Final = MIB
"""Keys, values and headers of a batch, uncompressed; a single larger record travels alone."""
values_bytes_max: Final = batch_bytes_max + value_bytes_max + 64 * KIB
"""Bytes of the packed and uncompressed values of a batch, and of all batches of one append
request together."""
batch_records_max: Final = 10_000
request_records_max: Final = batch_records_max
"""Records of all batches of one append request: its answer may have to list a seq for each."""
removal_keys_max: Final = 32
"""Keys or spans of one trim or delete: applying it is one step."""
log_name_bytes_max: Final = 128
producer_name_bytes_max: Final = 256
number_max: Final = (1 << 63) - 1
"""The largest integer in a request, a command or a record. The sum and the difference of two such
numbers still fit the 64 bits that msgpack can carry."""
timestamp_max_ms: Final = 253_402_300_799_999
"""The end of the year 9999, in Unix time."""
cluster_id_bytes_max: Final = 64
boot_max: Final = (1 << 31) - 1
"""Starts of one data directory: one a second for 68 years. Liveness shifts the number of the boot
by 32 bits, and the result has 63 (`raft.liveness`)."""
boot_jump_max: Final = 1 << 24
"""Starts of a node that another node did not hear of. A start takes half a second at least, so that
a node would have to crash in a loop for 97 days, unheard."""
generation_jump_max: Final = 1 << 24
"""Generations of a range that a node did not hear of. A change of generation takes a second or
so: half a year of changes without a pause."""
term_jump_max: Final = 1 << 24
"""Terms of a group that a member did not hear of. A term takes an election, and an election
timeout of 0.75 s at least: 145 days of elections without a pause."""

# Tokens.
tokens_max: Final = 4_096
invites_max: Final = 256
"""Invitations of new nodes that nobody has used."""
founding_ms: Final = 3_600 * 1_000
"""After the founding of a cluster: so long its founders join without an invitation."""
inviter_bytes_max: Final = 512
"""Of the name of the principal that made an invitation."""
invite_expiry_ms_max: Final = 7 * 24 * 3_600 * 1_000
"""Of a cluster, expired ones included until a later token takes their place."""
tokens_bytes_max: Final = MIB
"""All tokens of a cluster as every node stores them."""
token_scopes_max: Final = 16
tokens_page_max: Final = 500
tokens_page_bytes: Final = 256 * KIB
"""Of the tokens of one answer, but for the last of them."""
token_bytes_max: Final = 16 * KIB
"""One token as it travels: a token with 16 of the longest scopes has 11.1 KiB."""
principal_name_chars_max: Final = 64
quota_class_chars_max: Final = 64
certificate_holder_chars_max: Final = 128
"""Of `client NAME`, `name COMMON-NAME` or `key FINGERPRINT`."""

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
"""Raft messages in one frame, also rounds of reads, also answers to rounds. A frame is taken in one
turn of the loop, so a node sends at most 129 of all three together (see `node.links.peers`)."""
raft_parts_max: Final = 4_096
"""Entries of all appends of one frame, with the groups that its rounds of reads ask about and the
numbers of its answers to rounds. The receiver takes a frame in one turn of the loop, in which 4,096
entries take 14 ms. A node sends at most 1,024 entries in an append and 3,100 parts in a frame."""
raft_round_reads_max: Final = 2_048
"""Groups that one round of reads asks about; the next round asks about the others."""
commands_per_principal_max: Final = 32
"""Requests of a principal that change the metadata and are under way at a node."""
commands_under_way_max: Final = 128
"""The same, of all principals: far fewer than the `requests_in_flight_max` of the link over which
they go on to the controller's leader."""
told_rows_max: Final = 1 << 14
"""Rows of one list in what a node tells the controller's leader of its ranges, but for leaders: the
node tells of the others when there is less to tell."""
raft_left_max: Final = 1_024
"""Groups that a ping says have left; a node sends at most 256 (see `raft.liveness`)."""
frame_memory_max: Final = 32 * MIB
"""Memory of the arrays and maps of one frame with their elements, beside the bytes on the wire. One
byte on the wire may take 72 bytes of memory. The limit allows 131,072 small arrays and maps."""
handshake_memory_max: Final = 16 * KIB
"""The same limit before the other side has shown who it is."""
handshake_bytes_max: Final = 64 * KIB
"""The largest frame before the other side has shown who it is."""
requests_in_flight_max: Final = 1_024
"""Per connection; the reader stops reading above it."""
requests_in_flight_bytes_max: Final = 64 * MIB
"""Of the requests a connection has read and not answered; above it too the reader stops."""
send_buffer_bytes_max: Final = 4 * MIB
"""Unsent bytes of a connection above which its requests wait, on either side."""
connections_max: Final = 4_096
"""Of clients at one node, unless it may open too few files for so many."""
connections_per_host_share: Final = 7 / 8
"""The most of these connections that one host gets; the last eighth is left for other hosts."""
handshakes_max: Final = 256
"""Connections of one listener that have not finished their handshake; the oldest gives way."""
idle_timeout_s: Final = 600.0
"""A client's connection without a request for so long is closed, unless the node is told
otherwise. The client dials again at its next call."""
frame_window_s: Final = 5.0
frame_bytes_per_s_min: Final = 16 * KIB
"""An incomplete frame that grows more slowly in two windows in a row ends its connection."""
incomplete_frames_bytes_max: Final = 256 * MIB
"""Of all connections of a listener together; above it the oldest incomplete frame gives way."""
peer_connections_max: Final = 4
"""Connections from one known node: its link, and what it fetches files over."""
stranger_connections_max: Final = 16
"""Connections from all nodes that the metadata does not know yet, together."""
http_connections_max: Final = 64
http_first_request_s: Final = 10.0
http_next_request_s: Final = 30.0
"""A connection begins its next request so soon after the one before, or is closed."""

# Memory of a node's connections (see `budget`). Nodes of the cluster have budgets of their own.
answers_connection_bytes_max: Final = 16 * MIB
"""Answers to one connection that are being made or wait for the kernel to take them."""
answers_principal_bytes_max: Final = 64 * MIB
answers_node_bytes_max: Final = 256 * MIB
requests_principal_bytes_max: Final = 128 * MIB
"""Requests of one principal that are being read, wait or are served."""
requests_node_bytes_max: Final = 256 * MIB
request_overhead_bytes: Final = 4 * KIB
"""What a request costs the node beside its own bytes: a read that waits was measured."""
answer_small_bytes: Final = 64 * KIB
"""An answer of at most so much is paid for with its request, and waits for no room."""
unsent_free_bytes: Final = 64 * KIB
"""Unsent bytes with which a connection may go on, however little room the others have left."""
frame_free_bytes: Final = 16 * KIB
"""Bytes of an incomplete frame that a connection may have here without asking for room."""
reader_progress_bytes: Final = 256 * KIB
"""A reader makes progress when it takes so much of what waits for it, or all of it."""
reader_patience_s: Final = 30.0
"""A reader that makes no progress for so long is closed."""
reader_patience_pressed_s: Final = 5.0
"""The same, while others have waited for so long for the room that the reader takes."""

# Producers.
producer_window_max: Final = 524_288
"""Numbers above `low` that a range remembers; `submit` waits at it and a range refuses beyond."""
producer_requests_in_flight_max: Final = 5
"""Per range and producer."""
request_batches_max: Final = 256
"""Batches of one append request, of together `batch_bytes_max`; each has its own fate."""
producers_per_range_max: Final = 100_000
remembered_numbers_max: Final = 1_000_000
"""Of a range, of records that were applied and not settled by their producers; beyond it producers
with many of them are refused, see `statemachine.producers`."""
producers_of_principal_max: Final = 50_000
"""Of a range, where clients are known: the others are for others."""
producers_named_max: Final = 100_000
"""Names that the cluster knows."""
producers_named_per_principal_max: Final = 50_000
producer_names_bytes_max: Final = 16 * MIB
producer_names_bytes_per_principal_max: Final = 8 * MIB
producer_grant_bytes: Final = 28
creation_bytes: Final = 16
"""What a client draws for each call of `create_log`: its attempts are known by these bytes."""
producer_name_expiry_ms: Final = 7 * 24 * 3_600 * 1_000
"""A name that nobody opens for so long is forgotten: its next opening goes on as if it was not."""
producer_unacked_bytes_default: Final = 64 * MIB
producer_expiry_ms: Final = 24 * 3_600 * 1_000

# Removal, per range. What apply refuses by them is refused by every replica.
floors_max: Final = 100_000
"""Keys that are trimmed or deleted above what retention has passed, and what leases remember of
them: their rows stay in memory."""
lineage_spans_max: Final = 4_096
"""Spans of keys with a floor or a compaction mark of their own."""
leases_max: Final = 64
leases_per_principal_max: Final = 16
"""Of a range, where clients are known: the others are for others."""
lease_id_chars_max: Final = 128
timeout_ms_max: Final = 7 * 24 * 3_600 * 1_000
"""Of a request. A node waits for a read 60 s at most."""
lease_ms_max: Final = 7 * 24 * 3_600 * 1_000
"""A lease ends by then unless it is renewed."""

# Memory of a node.
memtable_bytes_max: Final = 64 * MIB
memtable_hard_bytes_max: Final = 256 * MIB
"""Of a range, frozen ones included. Above it appends are refused: segments cannot be built, or not
as fast as entries come."""
frozen_scarce_bytes: Final = 96 * MIB
"""Of a range's frozen memtables: two that wait. Above it the builder gives way to nobody."""
memtable_age_s: Final = 600.0
memtable_cold_s: Final = 30.0
memtable_cold_bytes: Final = 4 * MIB
"""A memtable that has hardly grown for so long is frozen, unless it is smaller."""
memtables_bytes_max: Final = 512 * MIB
"""Of a node, frozen ones included; above it the largest are frozen, however small."""
memtables_hard_bytes_max: Final = 1024 * MIB
"""Of a node: above it appends are refused."""
append_light_bytes: Final = MIB
"""Who has appended no more lately (half of it counts a second later) goes on above the hard bounds,
by a quarter of them: others are why segments are missing."""
append_queue_bytes_max: Final = 32 * MIB
"""Bytes of a principal's appends that a range holds and that are not yet committed, with all that
are under way; above it OVERLOADED."""
append_queues_bytes_max: Final = 64 * MIB
"""The same, of all principals."""
proposed_bytes_max: Final = 2 * MIB
"""Bytes of appends of a range that are under way to the members, besides one entry. The others
wait, and principals share what goes next."""
proposed_scarce_bytes_max: Final = 256 * KIB
"""The same, while segments are not built as fast as entries come, or several principals append to
the range."""
proposed_shared_entry_bytes_max: Final = 1 * MIB
"""Of one entry while several principals append to the range."""
log_cache_bytes_max: Final = 32 * MIB
"""Newest Raft entries kept in memory per group; older ones are read back from the WAL."""
group_window_bytes_max: Final = 8 * MIB
"""Bytes of one group sent to a peer and not acked, above which the guard hides the peer."""
peer_window_bytes_max: Final = 32 * MIB
"""Bytes of all groups queued for one peer, above which the guard hides the peer from each."""
block_cache_bytes_max: Final = 64 * MIB
"""Decoded blocks of segments, of all ranges of a node."""
column_cache_bytes_max: Final = 256 * MIB
"""Unpacked values of batches in memtables. A key's entries lie in as many batches as it has
entries, each up to a MiB: below what is read together, every read unpacks them all again."""
follows_max: Final = 65_536
"""That a node serves."""
follows_per_connection_max: Final = 1_000
"""Fewer than requests in flight, so that a connection full of follows still answers."""
follow_keys_max: Final = 10_000
"""Keys of one follow request; a client follows more with several. With the longest keys a request
has 5 MB."""
followed_keys_max: Final = 500_000
"""Of all follows of a node; each takes some 200 bytes."""
follow_credit_bytes_max: Final = 4 * MIB

# Pages.
page_bytes_default: Final = 256 * KIB
page_bytes_max: Final = 4 * MIB
page_entries_max: Final = 20_000
keys_page_max: Final = 10_000
export_bands_max: Final = 1_024
"""Bands of seqs in the position of an export."""
layout_rows_max: Final = 8_192
producers_page_max: Final = 1_000
ranges_page_max: Final = 500
"""Descriptors of ranges; fewer where their keys are long."""
logs_page_max: Final = 500
health_reasons_max: Final = 1_000
"""Reasons of one answer about health; a last line counts the others."""
status_page_max: Final = 500
"""Rows of all sections of the status together."""

# Files.
wal_file_bytes: Final = 64 * MIB
"""Unless the node is told otherwise, within the next two."""
wal_rewrite_bytes_max: Final = 4 * MIB
"""Entries of one group that are written anew in one round to let old WAL files go."""
wal_file_bytes_min: Final = 64 * KIB
wal_file_bytes_max: Final = 1 << 30
segment_block_bytes: Final = 32 * KIB
segment_unpacked_bytes_max: Final = 256 * MIB
"""Keys and values, uncompressed, above which a memtable is flushed: the builder holds them all."""
builder_patience_s: Final = 60.0
builder_bytes_per_s: Final = 256 * KIB
"""Of batches as they came. A builder process that is slower than this, and late by its patience,
hangs: it is killed, and the segment built again."""
meta_map_bytes: Final = 16 << 30
base_bytes_max: Final = 512 * MIB
"""Manifest and tables of a range as a peer sends them. Floors have 50 MB at most, and a producer
that has all of its window under way has 10 MB."""
base_chunk_bytes: Final = 4 * MIB
"""A piece of a segment file in a base transfer, at most."""
disk_reserve_bytes: Final = 512 * MIB
"""Unless the node is told otherwise: with less free it refuses appends. Two WAL files at least."""
disk_reserve_bytes_max: Final = 1 << 50
scrub_bytes_per_s: Final = 4 * MIB
"""Unless the node is told otherwise: of segment files that are read and hashed again."""
transfer_bytes_per_s: Final = 64 * MIB
"""Unless the node is told otherwise: of segment files that it gives, and as much that it takes."""

# The metadata between nodes.
image_page_bytes: Final = 256 * KIB
"""Buckets of an image that one answer has, and one bucket more."""
image_page_buckets_max: Final = 8_192
bucket_bytes_max: Final = tokens_bytes_max + 64 * KIB
"""All tokens are one bucket."""
image_bytes_max: Final = 256 * MIB
"""Of all buckets together."""

# Placement.
ranges_per_log_max: Final = 4_096
split_bytes_default: Final = 512 * MIB
"""Of segments: a range that has more is split, unless the log's policy says otherwise."""
split_bytes_min: Final = MIB
split_rate_default: Final = 20_000
"""Records appended and reads answered a second: about a fifth of what a node takes."""
split_rate_min: Final = 100
"""Of less there is too little to sample."""
lead_rests_s: Final = 600.0
"""For so long a range is led where an operator or a balance put its lead."""
logs_max: Final = 10_000
"""Of a cluster."""
ranges_max: Final = 50_000
"""Of a cluster, those that splits under way are to create counted."""
replicas_per_node_max: Final = 5_000
"""Of new ranges on all nodes that they may go to, evenly spread. Each takes some 30 KB; with more
the groups of a node on one core have no time to elect their leaders."""
replicas_max: Final = 7
nodes_max: Final = 1_024
host_name_chars_max: Final = 253
host_label_chars_max: Final = 63
"""Of a DNS name, as RFC 1035 (2.3.4) has them."""
address_bytes_max: Final = 300
"""`host:port` with a host name of 253 bytes at most."""
zone_bytes_max: Final = 128

# Quotas.
quotas_max: Final = 1_000
"""Classes and tenants with a quota."""
quota_max: Final = 1 << 53
"""The largest limit of a quota."""
spenders_max: Final = 10_000
"""Principals whose use a node remembers, and tenants, unless more have logs. More than
`connections_max`."""
usage_rows_max: Final = 1_000
"""Principals of which a node says what they have used: those that used most of its time."""
answer_reserved_bytes: Final = 64 * KIB
"""What a read takes of its quota before the size of its answer is known."""

# Clients.
client_retry_backoff_first_s: Final = 0.05
client_retry_backoff_max_s: Final = 1.0
