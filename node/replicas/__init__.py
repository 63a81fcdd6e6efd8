"""The replicas of a node: each is one member's copy of one generation.

    host                     recovers, creates, reinstalls and retires the replicas of the node
    replica                  connects one Raft group with messages, syncs and the event loop
    range_replica            gathers appends into entries and tells followers of new entries
    controller_replica       replicates the metadata; controller_store keeps it on disk
    gathered, brought        order waiting appends fairly; measure what each principal appends
    proposed_batches         keeps what the leader decoded until the entry is applied
    rounds                   one write and sync of the WAL for all groups at a time
    clocks                   which timestamp a leader gives
    news, contact_watch      tell followers of new entries, and that their member is cut off
    key_turns                clients that update a key take turns
    view_waits               appends wait for views
    read_turns, prepare      reads in turns of the loop; a thread makes files ready
    base_files               whether the node has the files of a base, on its disk or in the tier
    far_conditions           conditions of appends that need files in the tier only
    pinned_files, log_pins   what is kept for work that is under way
    flush, idle_memtables    build segments from memtables, also from idle ones
    traces                   the spans of appends, if they are exported
    load, producer_use       count the use of each replica and of its producers

The contract: no append is acknowledged before a majority of the members have its entries on disk
and this member has applied them (S1). Nothing here knows a connection.
"""
