"""raft: consensus without I/O, on PySyncObj behind a guard.

A `Group` is one member of one generation of one range: a Raft group whose members never change.
It does nothing by itself. Whoever drives it (the node, the simulator, a test) owns the network,
the disk, the clock and the state machine, and has these duties.

The caller

1.  recovers the WAL and hands each group its `GroupLog`, after recovery has synced what it read
    (x4). The log reaches `applied_index`, which is durable in the state machine; a
    log that ends below it was reset to (applied index, its term) before (x15).
2.  never starts a group whose log, term or vote was lost or damaged (x2).
3.  calls `connected(peer, epoch)` when its link to a peer is up, each time with another epoch, and
    `disconnected(peer)` when it is gone. Links are one-way: requests and answers to a peer leave
    on ours, what it says arrives on its own. A link that loses a message in the middle is slow,
    never wrong. A link with too much to send is told by `pause(peer)` and `resume(peer)`: it keeps
    its epoch, since what is on its way arrives.
4.  calls `tick()` at `next_deadline()`, and asks for the deadline again after every other call.
5.  passes each message of a member to `receive`, in any order, any number of times or never,
    after having checked that both sides mean the same group with the same descriptor.
6.  after every call takes the messages out and sends them. They may leave at once: those that
    promise something stay inside until what they promise is synced.
7.  writes what the logs have queued as WAL rounds, as many as it likes, one sync at a time, and
    after `Wal.complete` calls `synced()` on each group that the round touched. A failed write or
    sync ends the process (hole 12).
8.  takes committed entries out in slices of a size it chooses, applies them in order, and tells
    the difference between its own proposal and another's at the same index by the term: an entry
    committed at (index, term) as `propose` returned it is that proposal; another term there means
    that the proposal will never be applied. While neither is known the outcome is unknown.
9.  serves a read only after `take_reads` gave its index and that index was applied; None is a
    failure, and a ticket is settled once. A deadline is the caller's. What a round of reads asks
    (`take_read_begun`) travels in the `ReadRounds` of the node, with the links told to it as to
    the groups; only a group that is here with the same descriptor may answer (x2.12).
10. cuts the front of the log itself (`GroupLog.cut_front`), never above what the state machine
    has durably applied. Peers behind it appear in `needs_base`; their side shows `base_wanted`.
    The base is installed there with the group stopped, the log is reset to it, a new `Group` is
    made on it, and `base_installed(peer)` may be called here to hurry.
11. gives one clock, monotonic, seconds, and one `random.Random` per group. The clock may stand
    still between calls; it never goes back.
12. gives all groups of a node one `Liveness`, if they are to rest: calls its `tick` at its
    deadline, sends a frame to each peer when that says so, puts `Liveness.ping` into every frame
    and gives those of the peers to `heard` before the frame's messages, and calls
    `Group.disturb` for each of `take_wakes` after either. Rest concerns timers and heartbeats
    alone; commits, votes and reads need the same quorums as ever.
13. treats InvariantError out of any call as the end of the process, since going on could lose
    data, and CorruptData as damage of this replica: an entry read back from the WAL has another
    checksum, and the group is stopped for good (x2, promise S12).

Messages (`messages.py`; arrays `[kind, term, epoch, ...]`)

    Append          leader: entries after a position that both should hold; empty: heartbeat
    Ack             held, durable, up to here                              waits for the sync
    Reject          not held; up to my commit index we agree, and my log ends here
    VoteRequest     candidate, after a won pre-vote                        waits for the sync
    Vote            one per term                                           waits for the sync
    PreVoteRequest  would you vote for me in the next term?
    PreVote         yes
    Term            your message was of an older term than mine
    BaseProbe       leader: my log begins here, do you hold this entry? It is also a heartbeat
    Started         a member has started: ask it again what it missed
    Quiesce         leader: you have everything; shall we rest?
    Quiesced        yes, until your node is missing or says that the group rests no longer

Beside them, for all groups of a pair of nodes together (`read_rounds.py`)

    round           are you at this term? Each group whose reads wait, leader or follower
    answer          for each: no; or yes, and the commit index if I am that term's leader

How a message is judged: a request of an older term is answered with `Term`; a reply of another
term or of another link is dropped; a higher term in any message is stepped up to.

Modules: `engine` wraps the library, `journal` is its view of the log, `guard` holds the rules that
close its holes as functions, `replicator` and `progress` are the leader's side of replication,
`follower` is the other, `member` what both share, `prevote` and `readindex` are the two protocols
that the library lacks, `read_rounds` carries the second for all groups of a node, `idle` is a
group's rest and `liveness` what nodes know of each other meanwhile, `outbox` holds promises back
until they are durable, `group` ties them together, `types` has what all share. Below them lies the
WAL: `wal`, `wal_files`,
`wal_format`, `wal_scan`, `wal_recovery`, `group_log`, `os_disk`.
"""
