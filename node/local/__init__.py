"""Run a local cluster of real processes, for `lognode dev`, the demo, tests and benchmarks; write
the configuration file of a node.

    dev                      starts, stops and kills nodes
    dev_data                 reads what an earlier run left
    dev_auth, dev_tls        tokens and certificates of the cluster
    init_file                writes the configuration file of a node

The contract: nothing is reachable from outside, and no other process is ended.
"""
