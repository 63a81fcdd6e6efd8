"""chaos/whole/: real daemons and real SDK clients in one process, on a virtual clock.

A run is a function of its seed. The product's own asyncio code runs: the daemon with its listeners,
links, replicas and background work, and `AsyncClient`, `Sender`, `AsyncFeed`, paging, snapshots and
named producers. Files are real, in a temporary directory; LMDB makes its real calls. The fast mode
(`chaos/sim/`) runs the cores of the product on a simulated disk, many times faster.

The surroundings of the product are simulated:

- `process`: a simulated process, which the loop can pause and end at once;
- `loop`: asyncio's event loop with virtual time, which draws the process that runs next;
- `network`, `sockets`: links between machines, and connections with delays, cuts and resets;
- `threads`: work of threads and of child processes, done in the loop at drawn times;
- `far_store`: the object store of the cluster's tier, and the faults of requests to the store;
  `store_threads`: the threads of nodes that wait for the store; `memory_store`: a store in memory;
- `clock`: time, entropy and free space of the machine, replaced while a run lasts;
- `trace`: the events of a run, and their hash;
- `disk`: the WAL's real files, which a loss of power cuts back to what was synced;
- `nodes`: the daemons, each on its machine; `faults`: what is drawn against them;
- `options`, `additions`: what a seed draws; `founding`: how the cluster begins;
- `run`: one seed, judged by the checkers of the live tests;
- `sides`: clients with a judgement of their own, beside the workload: `guests` with tokens that
  end, `pages` over HTTP, `removed` entries of other logs, `restores` of backups, a `tiered` log
  that is restored from a copy of the store, a `cached` log of which the disks keep little, whose
  answers `cached_reads` judges, `renewals` of certificates; `range_changes` splits, merges, moves;
- `recovered_token`, `rot`, `lost_nodes`, `directories`: what is done after the faults, to a healthy
  cluster;
- `credentials`, `certificates`, `sealed`: files of a secured run, and TLS over simulated sockets;
- `stage`: what each run needs; `cut_off`: a directed case;
- `runner`, `command`: many seeds over several processes, and the verb.

There are three rules. All order, time and randomness comes from the loop and its seed; a test
compares the hashes of two runs in two processes with different hash seeds. OpenSSL draws its own
entropy, so that only the lengths of its records are in the hash. Within one process
asyncio promises the order of callbacks, so only the order between processes is drawn. The product
is changed through `node.runtime.surroundings` where it has such a seam; `clock` alone replaces
functions of other modules.

The idea is that of FoundationDB's simulation (Zhou et al., "FoundationDB: A Distributed Unbundled
Transactional Key Value Store", SIGMOD 2021, section 4), of TigerBeetle's VOPR and of madsim for
Rust's tokio. Python's `looptime` moves the clock of asyncio in the same way, without the rest.
"""
