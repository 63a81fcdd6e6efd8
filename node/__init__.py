"""node: the daemon. What has a socket, a disk, a clock or a process is put together here.

The program and its parts

    main, config, dev: the program, its settings, a local cluster of real processes
    dev_auth, dev_data, dev_tls: tokens, earlier directories and certificates of a local cluster
    daemon: parts in order: lock, meta, identity, WAL, replicas, listener, loops
    interpreter, turn_time, turn_ends: the interpreter's settings; what a turn of the loop costs,
        and ends with
    slices, waiters, garbage: long work in slices, waiting for a number, when garbage is looked for
    bugs, supervision: what ends the node, and which parts begin again after a bug
    logs, metrics: structured logs on stderr, Prometheus metrics

Identity and joining

    data_directory, private_directory: layout, lock and identity; who may read the directory
    joining, bootstrap, newcomer: how a node comes to a cluster, or several found one
    attempt, admission, strangers: what an empty node shows and checks, and who says it is of
        another cluster
    membership, known_peers: registered, refused or fenced; who may speak as which node
    tls, authority, given_files: a node's certificates, the CAs of a file, files of the
        configuration
    ca, ca_verbs: a small certificate authority, and its verbs

Replicas

    replica: one Raft group between its messages, syncs, entries and the loop
    range_replica, gathered: appends gathered into entries in fair order, and those who follow
    controller_replica, controller_store: the metadata, replicated the same way, and stored
    host: all replicas: recovered, created once, reinstalled, retired
    duties, first_base, reports: does what the metadata asks of this node, and tells how far it is
    rounds, sync_thread, meta_puts: WAL rounds and rows of meta, on the threads that may block
    rows, stored: the rows of meta, and how much the tenants' logs hold
    handover, draining, young: leads handed over, a node emptied, new ranges settled a few at a time
    clocks, contact_watch, confirmations: stamps of a wrong clock, followers told of a lost quorum,
        read rounds
    turns, reads, trims, lease: reads in turns of the loop, trims looked at first, leases
    producer_use: when producers were last used

Files

    memtables, flush, cooling: when memtables are frozen, and how they become segments
    merges, prepare, sound_files: small segments joined, opened by a thread, and known to be sound
    base_transfer, base_server: a base and its files from a peer, and the giving side
    base_pieces, rate: a base as bytes, which may be larger than a frame; how fast it travels
    segment_repair, scrub: damaged files mended in place from a peer, and looked for
    disk_room, disk_watch: appends refused, and leads given away, before the disk is full
    maintenance: WAL files freed, producers retired

Control

    controller_driver: commits what partitions/ says as the controller's leader
    controller_changes: the controller's own next generation, pushed to its members
    view, heartbeat, leaders: the newest image, who leads, who is alive
    images, image_pages, image_rows: images of the metadata between nodes, in pages, and as stored
    retention, removals: what policies ask to be removed, and who proposes it
    load, loads, lead_balance: how much replicas are used, asked of all nodes; leads spread evenly
    hot, large, small: ranges led here that are busy, large or small for their policy
    recoveries, token_recovery: what an operator is told before unsafe recovery; the lost admin
        token

Links and listeners

    peers, pings, raft_in: links to the other nodes, who is alive, whose messages arrive
    server, peer_server, doors: the listeners for clients and nodes, and their bounds
    descriptors, turned_away, exposure: open files shared out, connections that had to go, the safe
        default
    http, http_guard, http_guests: health, metrics and status over HTTP; who may ask, how many
    http_log, http_status: what is logged of HTTP; pages made for a part of the time

What clients ask

    data_service, follow, follows: operations on ranges, follows and how many there are
    news: applied entries told to followers
    cluster_service, metadata_service: operations on the cluster, and pages of the metadata
    invite_service, token_service: operations on invitations and tokens
    producer_service, recover_verb: operations on named producers; `lognode token recover`
    fields, together, own_appends: checked bodies, questions asked once, appends of the node itself
    status, health: the status of the cluster, and whether it is as it should be

Who may use how much

    access, entrance, rights: who a client is, and what its token allows
    clipped, visible, reserved: what a client may see of ranges and answers; the cluster's own logs
    gate, quotas, foretold: requests held back for a quota; what a request may cost, held in advance
    brought: who brings little is refused last
    audit, audit_trail, auditing: who asked for what, and where that is written
    system_log, usage, usage_trail: logs of the cluster, what tenants have used

Verification

    verify, verify_bases: `lognode verify`: what a stopped node has on disk
    verify_replicas, verify_segments: whether meta, WAL and segment files agree
    meta_rows: reading meta in a process that garbage may end

One event loop thread runs all of it but the disk's waits and the builder process (decision 5).
"""
