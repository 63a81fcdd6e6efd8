"""partitions: the metadata, and the decisions that follow from it, without I/O.

`Metadata.apply` is the controller group's state machine. `metadata_state` is its state, and
`generation_commands` has the commands that change ranges. A change goes by seal, decide, install
(docs/design/ranges.md#seal-decide-install), in two pure functions that the daemon and the simulator
share. `change.next_steps` chooses what the controller's leader commits next, from the members'
reports in `facts`. `duties.duties` chooses what a node has to do, from the metadata and the node's
state.

`planner` chooses which changes are due: `leaving` the nodes that replicas have to leave,
`replacing` and `placement` the nodes that get replicas, `balance` the replicas that move for an
even spread, `leads` the leads that are handed over. `load_split` and `load_sample` find the key at
which the load of a range halves; the range's leader reports this key. `moves` and `lifecycle` check
an operator's requests on ranges and on nodes. `lineage` says where one generation ends and the next
begins.

Further parts:

    model, records, tables: the records as values, how they are written, tables whose changes can be
        undone
    commands, command_fields, proposals, overtaken: commands, their fields, which commands may be
        proposed, and which arrive too late
    buckets, received, received_rows: images in buckets, and the checks of an image from another
        node
    allocate, splits, joins, shrinking, recovery: ranges of a new log, of a split, of a merge; which
        ranges are merged; unsafe recovery
    locks, bounds: which operation may begin, how large the metadata may become
    new_log: the ranges of a new log, which are made ahead
    levels: when the feature level of the cluster may rise
    reasons: why an operation was planned, as codes
    creations, policy, quota, spans: logs: repeated creation, policies, quotas, spans of keys
    groups, views: consumer groups of logs; names that appends can wait for
    producers, grants, tokens, invites: names of producers, grants of their ids, tokens, invitations

Three rules hold for every change:

    1.  A range's generation ends by a `seal` entry in its own log, proposed by its own leader.
    2.  The controller decides only once a majority of every output's members hold the sealed
        state, durably and with the same hash. Until then the operation can only be carried forward.
    3.  A member starts a new generation when its base is durable, never before. It deletes the old
        generation when the metadata says that it is done, never because it is not mentioned.
"""
