"""chaos/sim/: the deterministic simulator of replicas, disks, networks and clients.

A run is a function of (seed, options): one thread, one virtual clock, one seeded source of
randomness per concern, and a heap of events. The product itself runs in it: the real engine, guard,
journal, WAL bytes, state machine, metadata, the decisions by which generations change, and the
rules of a replica's life (`node.rules`). The surroundings are simulated: time, the network, the
disk, process kills, and the clients. The code that carries rules and decisions out is simulated
too, since a node's own code is asyncio.

Parts, from the bottom up:

- `clock`: virtual time and the heap of events;
- `trace`: one line per event, and the hash that two runs of one seed share;
- `network`: links with epochs; drops, delays, duplicates, cuts, stalls, late messages;
- `disk`, `rot`: files whose unsynced bytes are lost or torn in a power loss, and damage;
- `store`, `segments`: meta, manifest and segments, atomic and durable at commit;
- `host`: one machine and its process: WAL rounds, links, time; `inbox`, `pings`: its incoming
  messages;
- `member`, `replica`, `controller`: a member of any group, of a range, and of the controller;
- `replicas`, `duties`, `membership`, `view`: a node's part in generations: begin, seal, prepare,
  install, retire, and its exchange with the controller; `repairs`: damaged segments;
- `clients`: idempotent producers that retry, and linearizable readers; `removed`: the entries that
  their removals and leases allow to be gone; `cursors`: readers that keep cursors, and the check of
  what they are told; `cursor_port`: a replica as the service of cursors sees it;
- `group_leader`, `consumers`: the dispatcher of a consumer group on a leader, and consumers that
  are late, repeat themselves and die; `deliveries` checks what they are given and acknowledge;
  `letters`: the dead letters of that leader, and their check;
- `hindrance`: a consumer or a key with which the group gets nowhere at the end of a run (G5);
- `views`: waits for the group and the cursors, and the check of what leaders say of them;
- `safety`, `generations`, `history`: the checkers of one group, of the hand-over between
  generations, and of the clients' answers; `violation`: the report of a broken promise;
- `faults`, `draw`, `inject`, `nemesis`, `operations`: faults as values, drawn or given, and done;
- `operator`: removes machines that are gone for good, and recovers ranges that lost a majority;
- `cluster`, `world`: the initial cluster, and one run of one seed;
- `boundaries`: a node dies before each of its disk operations; `shrink`: reduces a failing run;
- `runner`, `command`: many seeds, the verdict, the verb.

There are two rules. The checkers never ask the product what is durable or committed if they can see
it themselves: they watch the disk's syncs. A run in which nothing happened proves nothing: few
elections or acknowledgements make the verdict invalid (`runner`).
"""
