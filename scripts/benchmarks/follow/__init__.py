"""Followers by the thousand, each at the tail of its own key, beside a steady ingest (P4).

run          `scripts/bench follow`: starts the systems and both loads, and prints the figures
plan         what both loads have to know
delivered    checks each delivery: nothing skipped, nothing repeated; collects latencies
appends      the appends, in processes of their own
receive      the followers, in a process of their own
on_lognode   how to append to and to follow lognode
on_nats      the same for NATS JetStream
"""
