"""chaos/sim/: the deterministic simulator of replicas, disks, networks and clients.

A run is a function of (seed, options): one thread, one virtual clock, one seeded source of
randomness per concern, and a heap of events. What runs on it is the product itself: the real
engine, guard, journal, WAL bytes, state machine, metadata, and the decisions by which generations
change. What is simulated is what surrounds them: time, the network, the disk, the process that is
killed, and the clients; and, since a node's own is asyncio, what carries those decisions out.

Parts, from the bottom up:

- `clock`: virtual time and the heap of events;
- `trace`: one line per event, and the hash that two runs of one seed share;
- `network`: links with epochs; drops, delays, duplicates, cuts, stalls, late messages;
- `disk`, `rot`: files whose unsynced bytes are lost or torn when the power goes, and damage;
- `store`, `segments`: meta, manifest and segments, atomic and durable at commit;
- `host`: one machine and its process: WAL rounds, links, time; `inbox`, `pings` what comes to it;
- `member`, `replica`, `controller`: members of groups, on one of which are a range or the metadata;
- `replicas`, `duties`, `membership`, `view`: what a node does about generations: begin, seal,
  prepare, install, retire, and the controller that it asks;
- `clients`: idempotent producers that retry, and linearizable readers; `removed`: what may be gone
  by their removals and leases;
- `safety`, `generations`, `history`: the checkers: of one group, of what one generation hands to
  the next, and of what clients were told; `violation`: how a checker says that a promise is broken;
- `faults`, `draw`, `inject`, `nemesis`, `operations`: faults as values, drawn or given, and done;
- `operator`: removes what is gone for good, and recovers a range of which most is;
- `cluster`, `world`: the cluster that a run begins with, and one run of one seed;
- `boundaries`: a node dies before each of its disk operations; `shrink`: a failing run made small;
- `runner`, `command`: many seeds, the verdict, the verb.

Two rules. The checkers never ask the product what is durable or committed when they can see it
themselves: they watch the disk's syncs. And a run in which nothing happened proves nothing: few
elections or acknowledgements make the verdict invalid (`runner`).
"""
