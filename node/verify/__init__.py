"""`lognode verify DIR`: check everything on the disk of a stopped node, and change nothing.

    verify                   the verb, and the order of its checks
    verify_bases, verify_replicas, verify_segments
                             states of ranges, replicas against the WAL, segment files

The contract: the checks trust nothing that they read, and leave the directory as it was.
"""
