"""lognode: a cluster that keeps millions of small ordered logs, one per key."""
