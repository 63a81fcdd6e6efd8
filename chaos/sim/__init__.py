"""chaos/sim/: the deterministic simulator of replicas, disks, networks and clients.

A run is a function of (seed, options): one thread, one virtual clock, one seeded source of
randomness per concern, and a heap of events. What runs on it is the product itself: the real
engine, guard, journal, WAL bytes and state machine. What is simulated is what surrounds them: time,
the network, the disk, the process that is killed, and the clients.

Parts, from the bottom up:

- `clock`: virtual time and the heap of events;
- `trace`: one line per event, and the hash that two runs of one seed share;
- `network`: links with epochs; drops, delays, duplicates, cuts, stalls, late messages;
- `disk`: files whose unsynced bytes are lost or torn when the power goes;
- `meta`: manifest and segments, atomic and durable at commit, as raft.md section 7 says;
- `host`: one process: WAL rounds, groups, apply, checkpoints, base installs;
- `clients`: idempotent producers that retry, and linearizable readers;
- `safety`, `history`: the checkers, which know no product code;
- `nemesis`: the faults, a random subset of them for each seed;
- `world`: one run of one seed; `runner`: many seeds over processes, and the verdict.

Two rules. The checkers never ask the product what is durable or committed when they can see it
themselves: they watch the disk's syncs. And a run in which nothing happened proves nothing: few
elections or acknowledgements make the verdict invalid (`runner`).
"""
