"""node: the daemon. What has a socket, a disk, a clock or a process is put together here.

    main, config, dev        the program, its settings, a local cluster of real processes
    daemon                   parts in order: lock, meta, identity, WAL, replicas, listener, loops
    joining, bootstrap       how a node comes to a cluster, or several found one
    replica                  one Raft group between its messages, syncs, entries and the loop
    range_replica            appends gathered into entries, and those who follow
    controller_replica       the metadata, replicated the same way
    host                     all replicas: recovered, created once, reinstalled, retired
    rounds, sync_thread      one WAL write and sync at a time, on the one thread that may block
    memtables, flush         when memtables are frozen, and how they become segments
    merges                   small segments joined in the background
    retention, removals      what policies ask to be removed, and who proposes it
    maintenance              WAL files freed, producers retired
    duties                   does what partitions/ says that the metadata asks of this node
    controller_driver        commits what partitions/ says as the controller's leader
    controller_changes       the controller's own next generation, pushed to its members
    base_transfer            a base and its files from a peer, verified
    base_server, rate        the giving side of it, and how fast
    base_pieces              a base as bytes: it may be larger than a frame
    segment_repair, scrub    damaged files mended in place from a peer, and looked for
    disk_room, disk_watch    appends refused, and leads given away, before the disk is full
    draining                 leads handed over while the node is being emptied
    view, heartbeat          the newest image, who leads, who is alive
    peers, server            links out, connections in
    data_service, follow     what clients ask of ranges
    cluster_service          what clients ask of the cluster
    load, loads              how much replicas hold and are used, asked of all nodes
    http, metrics, status    for people

One event loop thread runs all of it but the disk's waits and the builder process (decision 5).
"""
