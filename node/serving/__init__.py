"""Serve requests: look up the operation, call its handler, return the answer.

    server                   who may send requests, and which handler serves an operation
    data_service, reads      appends and reads of ranges
    follow, follows          entries pushed as they are applied; the limits on follows
    read_wait                what a read waits for, by its consistency
    lease, trims             leases of snapshots; trims that hide no entry
    partition_tails          where Kafka partitions begin and end; waits for their entries; trims
    restores                 entries of a backup, with their seqs
    cursor_service           the positions of readers that a range keeps
    group_service            consumers of groups, and operators
    view_service             waits of appends for views
    fresh_metadata           metadata that are surely as new as a request
    group_driver             drives the dispatcher of a group on a leader
    dead_letters             copies the entries that failed too often to another log
    group_appends            requests to append a batch with acknowledgements
    floor_shares             the floors of a range that one principal may keep
    cluster_service          logs, ranges and nodes; requests to the controller
    command_turns            the limit on each principal's metadata changes under way
    metadata_service         nodes, logs and ranges in pages
    producer_service         named producers
    group_catalog            the names of consumer groups
    view_catalog             the names of views
    status, health, next_step    the cluster as this node sees it, and what to do about trouble
    node_reports             storage, settings and connections of this node
    words                    the words of what the metadata keep as codes

The contract: a body is checked against the table of operations before a handler sees the body.
"""
