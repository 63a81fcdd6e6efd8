"""client/bench/: load for any cluster, checked and measured; `lognode bench` runs it.

    shape       keys and values; a value can be checked from itself
    digits      decimal numbers as keys, many at a time
    pace        when calls are due: an open loop at a rate, or a window of calls in flight
    report      latencies and rates, as JSON
    samples     acknowledged records that are read back at the end
    fairness    how long callers wait that compete for keys, and in which order
    garbage     rare garbage collections in a process that makes records by the million
    appending, contending, polling, following       one workload each, together in `mixed`

Contract:

1. At a rate, latency counts from the time at which a call was due, not from when it could be made.
So a stall is visible in all calls that queued behind it (Tene, "How NOT to Measure Latency"). The
duration of the call itself is reported as service time. A window has no due times: only service
time.
2. Data that is read is compared with the data written. Wrong data raises CorruptData; there is no
report then.
3. A failed append ends the run with its error. Retries within the client's timeout count as one
call.
"""
