"""What is done for a request: an operation of the table, a handler, an answer.

    server                   who may speak, and which part an operation goes to
    data_service, reads      appends and reads of ranges
    follow, follows          entries pushed as they are applied, and how many may ask for that
    read_wait                what a read waits for, by the consistency that it asks for
    lease, trims             leases of snapshots; trims that hide nothing
    floor_shares             what one principal may keep of a range's floors
    cluster_service          logs, ranges, nodes; the way to the controller
    command_turns            a few changes of the metadata of each principal at a time
    metadata_service         nodes, logs and ranges in pages
    producer_service         named producers
    status, health           the cluster as this node sees it

The contract: a body was checked against the table before a handler sees it.
"""
