"""The replicas of a node: each one member's copy of one generation.

    host                     all of them: recovered, created once, reinstalled, retired
    replica                  one Raft group between its messages, syncs, entries and the loop
    range_replica            appends gathered into entries, and those who follow
    controller_replica       the metadata, replicated the same way; controller_store keeps it
    gathered, brought        appends that wait, in fair order, and who brings little
    rounds                   one write and sync of the WAL for all groups at a time
    clocks                   which stamp a leader gives
    news, contact_watch      told to those who follow: entries, and that a leader is cut off
    read_turns, prepare      reads in turns of the loop; files made ready by a thread
    flush, idle_memtables    memtables become segments, at the latest when nobody writes them
    load, producer_use       what is counted of each replica

The contract: nothing is acknowledged before a majority has it on disk and it is applied (S1).
Nothing here knows a connection.
"""
