"""client: see docs."""
