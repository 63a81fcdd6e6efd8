"""Run a local cluster of real processes, for `lognode dev`, the demo, tests and benchmarks.

    dev                      starts, stops and kills nodes
    dev_data                 reads what an earlier run left
    dev_auth, dev_tls        tokens and certificates of the cluster

The contract: nothing is reachable from outside, and no other process is ended.
"""
