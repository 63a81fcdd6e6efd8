"""statemachine: see docs."""
