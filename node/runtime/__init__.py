"""Parts of the process that every room uses: its event loop, threads and limits.

    interpreter, garbage     settings made once, and when the garbage collector runs
    turn_time, turn_ends     how long turns of the loop take, and what runs at the end of each turn
    eager                    the first step of a coroutine before its task
    slices                   long work in slices, between which the loop runs
    sync_thread, futures     the two threads that wait for disks, and how a future gets a result
    workers, bounded_waits   threads that wait for an object store, and bounds for that wait
    wal_writer               rounds of the WAL on such a thread, or on a thread without Python
    surroundings             threads, child processes and the end of the process, for the simulator
    waiters, together        waiters for a number; one question for many callers
    parts, supervision       the parts that run until the node stops; parts that are begun again
    unexpected, shutdown     which failures end the node; why and when the node stops
    descriptors, rate        limits of open files and connections, and of bytes per second
    commit, compiled         the commit of the program; its modules in C
    logs, fields             log records, and values of checked bodies

The contract: nothing here knows a replica, a range or a request. It may use metrics.
"""
