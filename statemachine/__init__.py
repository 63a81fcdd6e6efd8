"""statemachine: the meaning of a range's committed entries, and their storage.

`RangeState.apply` turns entries into replies, seqs and an index; it is deterministic and has no
I/O. Applied entries live in a memtable (`memtable`). A memtable is frozen with the tables of
exactly its last index. A process of its own builds it into an immutable segment (`builder`,
`segment_writer`), and `reads` reads it. The caller

1.  applies committed entries in order, once each, and sends each reply to the waiting client;
2.  proposes FREEZE when the memtable is full or cold, or freezes it itself. It lets the builder
    write the segment of the oldest frozen memtable (in steps that leave the disk to others:
    `write_back`), adds the file to the store, commits the new base to meta in one transaction, and
    only then calls `flushed`. A crash between two of these steps loses nothing and leaves at most a
    file that no manifest names;
3.  at start restores from the base in meta and applies the log above it again, up to the
    recovered commit index and not beyond (x15);
4.  calls everything of one replica from one thread.

Modules

- Commands: `commands` encodes entries, and `forms` checks parts of them; `range_state` is the state
  machine itself; `admission` holds the checks of a leader before it proposes; `state_hash` hashes
  entries, and `effects` their effects; `refusals` are replies; `unknown` stops a replica at a
  command of a newer program; `rules` has the limits of each feature level.
- Idempotence: `producers`, `producer_row`, `producer_capture`, `number_runs`, `number_blocks`,
  `late_numbers`.
- Restores of backups: `restored` applies their commands, `sparse_memtable` holds their entries.
- Memtables: `memtable`, made of `seq_index`, `newest_table` (or `newest_positions`), `key_store`,
  `sorted_keys`, `batch_heads` and `column_cache`. `compiled` has their functions in C
  (`_memtable.c`).
- Segments: `segments` is the store. `segment_format`, `segment_block`, `segment_order`,
  `segment_dictionary` and `bloom` are the parts of a file. `segment_reader` reads a file by
  `segment_pages` and `segment_file`, `block_cache` caches its blocks, `span_copies` has copies of
  spans for reads in the order of seq, and `file_hash` names it. `recent_pages` bounds what the
  kernel keeps of files that were written.
- Writing a segment, with numpy, in a process of its own only: `segment_writer` sorts the batches
  of a memtable (`sources`, `batch_entries`, `packed_strings`, `key_order`), and `segment_output`
  writes what is sorted (`block_layout`, `block_output`, `bloom_output`, `key_hashes`,
  `order_output`). `strings`, `scattered` and `entries` are the columns, and `block_entries` makes
  them of a block that is merged. `compiled` has what is compiled of these steps (`_building.c`).
- Processes: `builder` builds segments; `merge_plan`, `merge` and `merge_process` merge them;
  `background` sets how such processes run.
- Removal: `removal_commands`, `removal`, `floors`, `span_map`, `leases`, `visibility` say which
  entries are removed, and which entries that hides.
- Cursors: `cursors` keeps positions of readers, and `cursor_commands` applies their commands.
- Kafka partitions: `tails` has the last seq of each.
- Split and merge of ranges: `split_key` finds where to split; `spans`, `clip` and `shared_files`
  say which data a child of a split begins with, and how much; `unite`, `union_rows` and `chains`
  make the state of a merged range, and order its entries.
- Consumer groups: the folder `groups`; `acked_appends` appends a batch with acknowledgements.
- Reads: `range_layers`, `span_reads`, `band_reads` and `reads` answer requests; `page` and
  `block_slices` hold the answers; `room` limits their size, `turn_limits` their steps.
- Bases: `meta` stores the small rows; `received_base` checks the base of another node.
"""
