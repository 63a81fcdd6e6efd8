"""Background work of a node on its files.

    memtables                when memtables are frozen, and in which order segments are built
    merges                   merge small segments into large ones
    retention, removals      what policies ask to be removed; leaders propose the removals
    group_states             forget the state of deleted consumer groups
    scrub, segment_repair    find damaged files and fetch them again from a peer
    disk_watch               refuse appends and give up leadership before the disk is full
    cluster_gauges           count nodes and ranges without a leader for the metrics
    maintenance              free WAL files, retire producers
    levels                   bring the feature level of the cluster to the directory and the ranges

The contract: this work gives way to appends and reads, and may be killed at any moment.
"""
