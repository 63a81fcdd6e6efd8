"""The data directory of a node, except WAL and segments, and the room left on its disk.

    data_directory           the layout, the lock that one process holds, the identity
    private_directory        directories 0700, files 0600
    given_files              files that the configuration names
    meta_keys                the keys of the rows of meta.mdb, and what the rows hold
    meta_puts                rows that many tasks store, with one sync
    meta_reader              meta.mdb read without trust, by a process that garbage may end
    feature_level            the feature level of the cluster, which earlier programs heed
    image_rows               the rows that hold an image of the metadata
    sound_files              segment files that were read back and found sound
    kept_files               segment files that replicas have in the tier only, and where
    disk_room                what a node refuses when little room is left: decisions, without I/O

The contract: a node of any later version can read what is stored here.
"""
