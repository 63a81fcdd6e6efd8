"""node/dispatch: hands out the keys of a consumer group on the leader of a range, without I/O.

The replicated state (`statemachine/groups`) says which entries are done. What is here is the
leader's own memory: which consumer has a key, until when, and what may be handed out next. A leader
that begins knows nothing of that, and fences the leader before it with GROUP_OPEN.

Duties of the caller, the driver of a leader:

1. Apply a GROUP_OPEN of this leader first, and make a `Dispatcher` of the group's state. Give the
   dispatcher up when the member ceases to lead, when the fence of the group is another, or when a
   command ends with another error than a refused floor. No answer goes to a consumer then.
2. Read what `next_read` says, in bounded turns, and hand the page to `take_page` at once, before
   any other command is applied.
3. Propose `proposals` in their order, and tell `applied` the answers in the order of the log,
   before the dispatcher is asked for anything that depends on later commands. Then ask for
   `proposals` again, and at the time of `next_tick_ms`: acknowledgements gather (`ack_turns`).
4. Call `removed` after entries were removed, before the next `take`; `decided` after a command of
   an operator was applied; `tick` at the time of `next_tick_ms`.

Promises: G1 to G5 of docs/design/groups.md, and bounded memory (`supply`).

Modules, from the bottom up: `key_line` is what is known of a key; `settling` are requests that wait
for commands; `leases` are the rights of consumers, `entry_leases` those to single entries;
`ready_keys` chooses who gets a key; `supply` reads ahead; `floor_claims` raises floors; `commands`
are proposals; `ack_turns` says when acknowledgements become a command;
`appends` are batches with acknowledgements; `batches` are answers; `dispatcher`
joins them. `letters` names the copies of entries that failed too often.

In a group without an order, what is said of a key holds for each entry: the unit is the entry
(`statemachine/groups/units.py`).
"""
