"""chaos/: tests of whole clusters under faults, from outside, in the manner of Jepsen.

A test starts a cluster of real node processes behind fault proxies. Clients run a workload against
the cluster while nemeses inject faults. Then the test heals all faults, reads everything back, and
judges the answers that the clients got. A test uses only the SDK, the command line and the network,
and can therefore judge any build of the system. `sim/` differs: it is the simulator, which runs the
product's code on virtual time.

- `history`, `verdict`: the events of a test, and the results of checkers: the shared words;
- `nodes`: the processes; `power_disk`, over `powerfs/`: their disks, where these can lose power
  or be slow;
- `credentials`: certificates and tokens of a secured cluster; `strangers`: clients without them;
- `links`, over `proxyserver` and `toxiproxy`: the network between the nodes, and its faults;
- `tier_under_test`: the object store of the cluster's tier, over `tier_server` and `tier_proxy`;
  `tier_watch`: restores of the log from the store;
- `nemeses/`: packages of faults; `nemesis`: when faults begin and end;
- `process`, `clients`: the clients, and `workloads/`: their operations;
- `upgrades`: nodes that change their build, and the end of an upgrade;
- `plan`, `runner`: one test from start to end, with `watch` and `finals`; `store`: its folder;
- `checkers/`, `judge`: the errors in a history; `report/`: its presentation;
- `seed_workers`, `trace_hash`: the processes in which the simulators of `sim/` and `whole/` run
  seeds, and the hash that two runs of one seed share;
- `check`, `foreign`: histories of other systems; `commands`, `main`: the command line.
"""
