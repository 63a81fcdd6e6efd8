"""client/backup: backups of logs in a store of `client/objects`, made and restored by a client.

    store        what is in the store: objects by name, manifests, the description of the encryption
    sealing      names, compression and encryption of what is stored
    manifest     what a backup has: logs, parts, objects, counts and sums
    pieces       entries as objects: where to cut, how they are packed, the sum of entries
    claims       the `create`s that run, and the numbers of sweeps
    owners       which process has a claim, and whether the process has ended
    sweep        remove backups, and then the objects that no backup names
    create       read snapshots of logs, store the objects that are new, then the manifest
    ahead        read objects before they are needed
    restore      put the entries of a backup into new logs, with their seqs
    verify       read every object of a backup and check it
    pace         a limit on the bytes a second

The contract: an object is named by its content, so a backup stores again only what changed, and a
backup that was interrupted continues by being made again. The manifest comes last: a backup without
a manifest does not exist. Nothing that is read from a store is believed before its name, its sizes
and its sum are checked.
"""
