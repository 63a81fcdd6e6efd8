"""faultproxy/: a TCP proxy that injects faults, with the HTTP API and the toxics of Toxiproxy 2.x.

It is there so that the suite runs where the real server is not: same paths, status codes, JSON
and errors, same effects (`tests/chaos` runs one set of tests against both). Of a malformed body
only the beginning of the error is the same, and attributes below zero are taken for zero.

- `toxics`: the kinds and their attributes;
- `stages`: what a toxic does to the bytes of one connection;
- `streams`: connections, each of two streams, each a chain of stages with bounded memory;
- `proxy`: listeners; `api`: HTTP. Run it with `python -m lognode.chaos.faultproxy --port N`.
"""
