"""raft: consensus without I/O, on PySyncObj behind a guard.

A `Group` is one member of one generation of one range: a Raft group whose members never change.
A `Group` acts only when called. Its caller (the node, the simulator, a test) owns the network,
the disk, the clock and the state machine, and has these duties.

The caller

1.  recovers the WAL and hands each group its `GroupLog`, after recovery has synced what it read
    (x4). The log reaches `applied_index`, which is durable in the state machine. The caller has
    reset a log that ended below `applied_index` to (applied index, its term) before (x15).
2.  never starts a group whose log, term or vote was lost or damaged (x2).
3.  calls `connected(peer, epoch)` when its link to a peer is up, each time with another epoch, and
    `disconnected(peer)` when the link is gone. Links are one-way: our requests and answers to a
    peer leave on our link, the peer's messages arrive on its own link. A link that loses a message
    in the middle is slow, never wrong. The caller calls `pause(peer)` when a link has too much to
    send, and `resume(peer)` later: the link keeps its epoch, since its messages still arrive.
4.  calls `tick()` at `next_deadline()`, and asks for the deadline again after every other call.
5.  passes each message of a member to `receive`, in any order, any number of times or never. It
    has checked before that both sides mean the same group with the same descriptor.
6.  takes the messages out after every call and sends them. These messages may leave at once: a
    message that promises something stays inside until the promise is synced.
7.  writes the queued items of the logs as WAL rounds, as many as it likes, one sync at a time.
    After `Wal.complete` it calls `synced()` on each group that the round touched. A failed write
    or sync ends the process (hole 12).
8.  takes committed entries out in slices of a size it chooses, and applies them in order. The term
    tells the caller's own proposal from another proposal at the same index: an entry committed at
    (index, term) as `propose` returned it is that proposal. Another term there means that the
    proposal will never be applied. Until an entry commits at the index, the outcome is unknown.
9.  serves a read only after `take_reads` gave its index and that index was applied. None is a
    failure, and a ticket is settled once. The caller sets deadlines for reads. The `ReadRounds` of
    the node carry the questions of a round of reads; they are told of links as the groups are. Only
    a group that is here with the same descriptor may answer (x2.12).
10. cuts the front of the log itself (`GroupLog.cut_front`), never above the index that the state
    machine has durably applied. Peers behind the front appear in `needs_base`; their side shows
    `base_wanted`. The peer installs the base with its group stopped, resets its log to the base,
    and makes a new `Group` on the log. `base_installed(peer)` may be called here to hurry.
11. gives one clock, monotonic, seconds, and one `random.Random` per group. The clock may stand
    still between calls; it never goes back.
12. gives all groups of a node one `Liveness`, if the groups are to rest. The caller calls the
    `tick` of `Liveness` at its deadline and sends a frame to each peer when `tick` returns True.
    Every frame carries `Liveness.ping`; the peer's ping goes to `heard` before the frame's
    messages. After either, the caller calls `Group.disturb` for each of `take_wakes`. Rest concerns
    timers and heartbeats alone; commits, votes and reads need the same quorums as ever.
13. treats InvariantError out of any call as the end of the process, since going on could lose
    data. CorruptData is damage of this replica: an entry read back from the WAL has another
    checksum, and the group is stopped for good (x2, promise S12).

Messages (`messages.py`; arrays `[kind, term, epoch, ...]`)

    Append          leader: entries after a position that both should hold; empty: heartbeat
    Ack             held, durable, up to here                              waits for the sync
    Reject          not held; up to my commit index we agree, and my log ends here
    VoteRequest     candidate, after a won pre-vote                        waits for the sync
    Vote            one per term                                           waits for the sync
    PreVoteRequest  would you vote for me in the next term?
    PreVote         yes
    Term            your message has an older term than mine
    BaseProbe       leader: my log begins here, do you hold this entry? Also a heartbeat
    Started         a member has started: repeat your open requests to it
    Quiesce         leader: you have everything; shall we rest?
    Quiesced        yes, until your node is missing or says that the group rests no longer

For all groups of a pair of nodes together (`read_rounds.py`)

    round           are you at this term? Each group whose reads wait, leader or follower
    answer          for each: no; or yes, and the commit index if I am that term's leader

How a member judges a message: it answers a request of an older term with `Term`, drops a reply of
another term or of another link, and steps up to a higher term in any message.

Modules: `engine` wraps the library, `journal` is its view of the log, and `guard` holds, as
functions, the rules that close its holes. `replicator` and `progress` are the leader's side of
replication, `follower` is the follower's side, `member` holds what both share. `prevote` and
`readindex` are the two protocols that the library lacks; `read_rounds` carries reads for all groups
of a node. `idle` is the rest of a group, `liveness` the nodes' knowledge of each other meanwhile.
`commit_news` says when peers are told the commit index.
`outbox` holds promises back until they are durable, `group` ties the parts together, `types` has
the shared types. Below them lies the WAL: `wal`, `wal_files`, `wal_format`, `wal_scan`,
`wal_recovery`, `group_log`, `os_disk`.
"""
