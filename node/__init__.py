"""node: the daemon. What has a socket, a disk, a clock or a process is put together here.

    main, config             the program, and its settings
    daemon                   parts in order: lock, meta, identity, WAL, replicas, ports, loops
    metrics                  what is measured

The other files are in rooms. A room uses only rooms below it; none is used in a circle
(`tests/unit/test_tidy.py`).

    local, verify            a local cluster; a stopped node looked at
    joining                  how a node comes to a cluster
    listeners                the ports
    serving                  what is done for a request
    web, links               HTTP; connections between nodes
    control                  what is heard from the controller and done as its leader
    upkeep                   files in the background
    lifecycle                how replicas begin and end
    access, audit            who may do what; who did what
    load                     how busy and how large ranges are
    replicas                 one member's copy of one generation, many times
    quota                    what principals use, and what they may
    metadata                 what the node knows of the cluster
    certificates             TLS
    directory                what is on the disk beside WAL and segments
    runtime                  loop, threads, limits of the process

Each room's docstring says what it holds and what it promises. One event loop thread runs all of it
but the disk's waits and the builder process (decision 5).
"""
