"""`lognode serve-tier`: answer reads of a cluster's logs from its tier, without the cluster.

    served_range             a range as one manifest of the tier has the range
    following                which ranges the tier has now, by looks at its manifests
    snapshot_leases          snapshots that keep their manifests while newer ones come
    tier_service             serves requests: metadata, reads, leases, status; refuses the rest
    tier_status              what `lognode status` shows, with the age of the manifests
    serve_verb               the command: its flags, its port, its end

The process joins no cluster and has no data directory, only a cache. It speaks the protocol of a
node, as if it were the only node of a cluster whose logs never get another entry. So the SDK, the
command line and Spark read from the process as from a node. The contract:

1. Each answer is of one manifest: all visible entries of its keys up to the `next_seq` of its base,
   or an error. A key is read from the whole head with the highest generation that has the key
   (`tier.coverage`). Keys that no whole head has are in no range, so a read of them fails.
2. Per key, answers never go back while the process runs: the heads of a chain never go back, and a
   later generation begins behind all that its parents have published. A client with positions of
   another such process gets Unavailable from a process that is behind (`applied`, `through`).
3. A read is refused when the last look at the manifests is older than `--max-stale`: then nobody
   knows what the answer lacks. Reads of a snapshot go on: they have an end of their own.
4. A lease keeps the manifests of its snapshot. Two reads of one snapshot show the same entries, or
   the second fails. A file of an old manifest leaves the tier after the grace time of the nodes,
   and the process cannot ask for more. So a lease moves on to newer manifests as long as their
   removal tables are the same for its keys: then they show the same entries up to its seq, in
   whatever files. A read whose file is gone fails with NotFound, as after the end of a lease.
5. Nothing of the store is believed: manifests have a hash, and blocks have checksums.

Executions that shaped the code:

- A split: the first child publishes, and the other does not yet. The parent's head has the rest of
  the keys. A client that knows the parent would take an answer about the rest for an answer about
  all of its keys. So a part of a head gets a range id of its own, and the parent's is unknown.
- A base is read, and then a sweep removes its files, because the process was paused for longer than
  the grace time. The read fails with Unavailable; the process looks at once, and the client's next
  attempt finds the new manifest.
- A lease is taken at one process, and its read goes to another process behind the same name. The
  other process knows no such lease: NotFound.
- The log is trimmed after a lease was taken. The new manifest has other removal tables, so the
  lease stays with the old manifest, while reads without a lease see the trim.
"""
