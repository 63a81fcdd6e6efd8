"""What scripts/bench runs: one module per system measured, one for the figures."""
