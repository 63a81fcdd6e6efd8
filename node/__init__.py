"""node: see docs."""
