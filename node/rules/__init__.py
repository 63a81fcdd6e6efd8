"""The rules of a replica's life, without I/O: they take what is known and return steps as data.

    durable_steps            the steps, and what an executor promises for each of them
    recovering               which replicas take part after a start, and from which entry
    beginning                how a generation begins here, at most once
    reinstalling             how a replica continues from a later base, or alone
    first_base               the base that a generation begins with
    generation_ends          what a node holds of generations and of their ends
    base_fetches             which states a duty takes from peers, and how long files stay
    controller_generations   how the controller's generations follow each other
    heartbeats               whom a node asks for news, and what the controller's leader keeps
    levels                   how a node and its ranges rise to the cluster's feature level
    flushing                 how memory becomes durable, how the log is cut and sealed
    merging                  which files of a range become one
    repairing                how a damaged file is replaced by a peer's
    ending                   damage, retirement, and the files that nothing names any more

The contract: a rule is a pure function. It reads rows of meta, logs and marks that are passed in,
changes nothing, and returns a tuple of steps. An executor carries the steps out one after another,
and each is done before the next one begins. A crash between any two steps is harmless, because a
start continues from what is durable; each rule names the execution that forbids another order
(docs/design/executions.md). The node (`replicas.host`, and `upkeep.segment_repair` for files) and
the simulator (`chaos/sim/replicas.py`, `chaos/sim/repairs.py`) carry out the same steps, so that
the simulator tries the rules that the node follows. `heartbeats`, `levels` and `base_fetches` have
no steps: they decide whom to ask, what to keep, and when a range may rise.

Nothing here uses asyncio, sockets, files, clocks or randomness (`tests/unit/test_tidy.py`).
"""
