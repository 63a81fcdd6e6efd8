"""statemachine/groups: the replicated state of consumer groups in a range, without I/O.

A group reads the keys of a log with many consumers; each key is with at most one of them. The state
says which entries are done, through every change of leader, split and merge. The unit of progress
is the key. A floor covers nearly all keys, and a row each of the others:

- The position of a key is the seq of the next entry that the group wants of the key. Every entry
  of the key below its position is done.
- The floor is the position of each key without a row. Seqs of merged ranges are unrelated, so a
  floor belongs to a lineage span of keys, like the marks of removal (x12). Floor 0: the group has
  not begun there.
- A row has the position of one key, above the floor or below, and what is known of its next entry:
  failed deliveries, parked or not, the last error. A row without such knowledge whose position is
  the floor says nothing, and is dropped.

In a group without an order each entry is a unit of its own, and what is said here of keys holds for
units. A position then says whether one entry is done.

Apply reads no entries. The leader reads them, and proposes a floor with the keys that still have
something to do below it (`claim`). Such a claim stays true whatever is applied in between, except
for a reset, which raises the fence (x30). Leases are the leader's own memory, not part of this
state. An acknowledgement names the position that it expects and the fence of the leader (x30).

Removal: trims by retention wait for the slowest key of a group that asked for it. Any other group
skips what was trimmed, and records it as lost. Entries that a client trims or deletes by key, and
entries that compaction replaces, are no longer wanted: a row moves on to the entries that are left.

The leader of a range proposes these commands, as its dispatcher says (`node/dispatch`).

Modules, from the bottom up: `units` names keys and entries; `forms` checks payloads; `row` has rows
and decisions; `group` is one group, `entry_group` one without an order; `table` all groups of a
range; `apply` applies commands; `trims` says what removal does; `stored` clips, unites and checks
the table in bases; `selection` says which keys a group reads; `undone` finds the entries to do,
from which `lag` makes exact lag and `claim` the next floor.
"""
