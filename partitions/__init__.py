"""partitions: the metadata and what is to be done about it, without I/O.

`Metadata.apply` is the controller group's state machine; `metadata_state` what it holds, and
`generation_commands` those of its commands by which ranges change. A change goes by seal, decide,
install (docs/design/ranges.md#seal-decide-install), in two pure functions that the daemon and the
simulator run alike:
`change.next_steps` says what the controller's leader commits next, given what members reported to
`facts`, and `duties.duties` what a node has to do, given the metadata and what it has. `planner`
says what should change at all: `leaving` which nodes replicas are to leave, `replacing` and
`placement` who gets them, `balance` which replicas move to be spread evenly, `leads` which leads
are handed over; `load_split` and `load_sample` where the load of a range halves, which its leader
tells. `moves` and `lifecycle` say what of an operator's wishes can be, on ranges and on nodes, and
`lineage` where one generation ends and the next begins.

Further parts:

    model, records, tables: the records as values, how they are written, tables whose changes can be
        undone
    commands, command_fields, proposals: what a command says, its fields, what may be proposed
    buckets, received, received_rows: images in buckets, and the checks of an image from another
        node
    allocate, splits, joins, shrinking, recovery: ranges of a new log, of a split, of a merge; which
        are merged; unsafe recovery
    locks, bounds: which operation may begin, how large the metadata may become
    creations, log_names, policy, quota, spans: logs: repeated creation, names, policies, quotas,
        spans of keys
    producers, grants, tokens, invites: names of producers, grants of their ids, tokens, invitations

1.  A range's generation ends by a `seal` entry in its own log, proposed by its own leader.
2.  The controller decides only once a majority of every output's members hold the sealed state,
    durably and with the same hash; until then the operation can only be carried forward.
3.  A member starts a new generation when its base is durable, never before, and deletes the old
    one when the metadata says that it is done, never because it is not mentioned.
"""
