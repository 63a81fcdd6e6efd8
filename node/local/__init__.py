"""A local cluster of real processes: `lognode dev`, the demo, the tests and the benchmarks.

    dev                      starts, stops and kills nodes
    dev_data                 what an earlier run left
    dev_auth, dev_tls        its tokens and certificates

The contract: nothing is reached from outside, and no other process is ended.
"""
