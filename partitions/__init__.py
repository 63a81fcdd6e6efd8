"""partitions: see docs."""
