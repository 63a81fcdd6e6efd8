"""What a node does with its files in the background.

    memtables                when memtables are frozen, and in which order segments are built
    merges                   small segments become large ones
    retention, removals      what policies ask to be removed, and who proposes that
    scrub, segment_repair    damaged files are looked for, and mended from a peer
    disk_watch               appends are refused, and leads given away, before the disk is full
    maintenance              WAL files are freed, producers retired

The contract: all of it gives way to appends and reads, and may be killed at any moment.
"""
