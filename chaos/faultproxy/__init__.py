"""faultproxy/: a TCP proxy that injects faults, with the HTTP API and the toxics of Toxiproxy 2.x.

The proxy lets the suite run on machines without the real server. Paths, status codes, JSON, errors
and effects are those of the real server (`tests/chaos` runs one set of tests against both). For a
malformed body only the beginning of the error is the same, and attributes below zero count as zero.

- `toxics`: the kinds and their attributes;
- `stages`: the effect of a toxic on the bytes of one connection;
- `streams`: connections, each of two streams, each a chain of stages with bounded memory;
- `proxy`: listeners; `api`: HTTP. Run it with `python -m lognode.chaos.faultproxy --port N`.
"""
