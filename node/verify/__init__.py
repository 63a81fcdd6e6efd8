"""`lognode verify DIR`: everything on the disk of a stopped node is looked at, nothing is changed.

    verify                   the verb, and the order of what it looks at
    verify_bases, verify_replicas, verify_segments
                             states of ranges, replicas against the WAL, segment files

The contract: it reads without trust, and a directory is the same afterwards.
"""
