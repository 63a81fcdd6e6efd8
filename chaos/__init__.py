"""chaos/: tests of whole clusters under faults, from outside, in the manner of Jepsen.

A test starts a cluster of real node processes behind fault proxies, runs a workload of clients
against it while nemeses break things, heals everything, reads everything back, and judges what
the clients were told. It knows the system through the SDK, the command line and the network only,
and may therefore judge any build of it. `sim/` is another thing: the simulator, which runs the
code of the product on virtual time.

- `history`, `verdict`: what happened, and what checkers say of it: the words all others share;
- `nodes`: the processes; `power_disk`, over `powerfs/`: their disks, where these can lose power
  or be slow;
- `credentials`: certificates and tokens of a cluster that has them; `strangers`: who has none;
- `links`, over `proxyserver` and `toxiproxy`: the network between them, and its faults;
- `nemeses/`: packages of faults; `nemesis`: when they begin and end;
- `process`, `clients`: those who ask, and `workloads/`: what;
- `plan`, `runner`: one test from begin to end, with `watch` and `finals`; `store`: where it is;
- `checkers/`, `judge`: what is wrong with a history; `report/`: how it looks;
- `check`, `foreign`: histories of other systems; `commands`, `main`: the command line.
"""
