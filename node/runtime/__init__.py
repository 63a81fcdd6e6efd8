"""What every room uses of the process that a node is: its loop, its threads, its limits.

    interpreter, garbage     what is set once, and when the collector runs
    turn_time, turn_ends     how long turns of the loop take, and what is done at the end of each
    slices                   long work in slices, between which the loop goes on
    sync_thread              the two threads that wait for disks
    waiters, together        who waits for a number, and questions that many ask at a time
    supervision, unexpected  a part that failed: what costs a turn of it, and what ends the node
    descriptors, rate        how many files and connections there may be, and how fast bytes move
    logs, fields             log records, and values of checked bodies

The contract: nothing here knows a replica, a range or a request. It may use metrics.
"""
