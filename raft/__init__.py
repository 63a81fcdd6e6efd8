"""raft: see docs."""
