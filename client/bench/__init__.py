"""client/bench/: load for any cluster, and what became of it; `lognode bench` runs it.

    shape       which keys and values; a value can be checked from itself
    pace        when calls are due: an open loop at a rate, or a window of calls in flight
    report      latencies and rates, as JSON
    appending, contending, polling, following       one workload each, together in `mixed`

Contract:

1. At a rate, latency counts from the time a call was due, not from when it could be made, so that a
   stall is seen by all that queued behind it (Tene, "How NOT to Measure Latency"); the time of the
   call itself stands beside it as service time. A window has no due times: service time only.
2. What is read is compared with what was written. Data that is wrong raises CorruptData; there are
   no figures then.
3. An append that fails ends the run with its error. What the client retries within its timeout
   counts as one call.
"""
