"""chaos: see docs."""
