"""The benchmarks of scripts/bench: one module per measured system, one for the figures."""
