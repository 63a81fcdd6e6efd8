"""node: the daemon, which connects sockets, disks, clocks and processes.

    main, config             the program, and its settings
    daemon                   parts in order: lock, meta, identity, WAL, replicas, ports, loops
    metrics                  Prometheus metrics

The other files are in rooms. A room uses only rooms below it, never in a circle
(`tests/unit/test_tidy.py`).

    local, verify            a local cluster; checks of a stopped node
    serve_tier               reads from a tier, without a cluster
    reactions                events that concern several rooms
    joining                  how a node joins a cluster
    listeners                the ports
    serving                  handlers of requests
    web                      HTTP
    door                     REST and server-sent events
    kafka                    the port for Kafka clients
    links                    connections between nodes
    control                  heartbeats, reports, and the work of the controller's leader
    upkeep                   background work on files
    tier                     sealed segments in an object store
    lifecycle                how replicas begin and end
    access, audit            rights of principals; records of their actions
    load                     load and size of ranges
    replicas                 each is one member's copy of one generation
    dispatch                 hands out the keys of consumer groups, without I/O
    rules                    the rules of a replica's life, without I/O
    quota                    use and limits of principals
    metadata                 the cluster as the node knows it
    certificates             TLS
    directory                the data directory, except WAL and segments
    runtime                  loop, threads, limits of the process

Each room's docstring says what it holds and what it promises. One event loop thread runs all of it
except waits for disks and the builder process (decision 5).
"""
