"""statemachine: what a range's committed entries mean, and where they are kept.

`RangeState.apply` turns entries into replies, seqs and an index; it is deterministic and has no
I/O. Applied entries live in a memtable (`memtable`), are frozen with the tables of exactly that
index, built into an immutable segment by a process of its own (`builder`, `segment_writer`), and
read through `reads`. The caller

1.  applies committed entries in order, once each, and sends each reply to whoever waits for it;
2.  proposes FREEZE when the memtable is full or cold, or freezes itself, lets the builder write the
    segment of the oldest frozen one (in steps that leave the disk to others: `write_back`), adds
    the file to the store, commits the new base to meta in one transaction, and only then calls
    `flushed`; a crash between two of these steps loses nothing and leaves at most a file that
    nobody names;
3.  at start restores from the base in meta and applies the log above it again, up to the
    recovered commit index and not beyond (x15);
4.  calls everything of one replica from one thread.

Modules: `commands` what an entry may say; `range_state` the state machine itself; `admission` what
a leader checks before it proposes; `producers`, `producer_row`, `producer_capture`, `number_runs`,
`late_numbers` idempotence; `received_base` what another node's base is checked for; `segment_pages`
whether LMDB can be trusted with a file; `memtable`, `segments` the two homes of entries;
`seq_chains`, `sorted_keys`, `column_cache` what a memtable consists of; `segment_format`,
`segment_block`, `segment_order`, `segment_dictionary`, `bloom` what a segment file consists of,
`segment_writer`, `segment_output`, `segment_reader` who writes and reads it, `block_cache` what is
kept of it; `merge_plan`, `merge`, `merge_process` how segments become fewer; `background` how those
processes run that do so; `removal_commands`, `removal`, `floors`, `span_map`, `leases`,
`visibility` what is removed, and what that hides; `split_key` where to split; `spans`, `clip`,
`shared_files` what a child of a split begins with, and how much that is; `unite`, `union_rows`,
`chains` what comes of a merge, and what of it follows each other; `range_layers`, `span_reads`,
`band_reads`, `reads` what can be asked; `page`, `block_slices` what is answered, `room` how much of
that, `turn_limits` in how many steps; `meta` the small rows; `effects` a hash of what the entries
did; `unknown` what stops a replica: a command of a newer program.
"""
