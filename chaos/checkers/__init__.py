"""chaos/checkers/: judges of histories; nothing here starts, waits for or asks anything.

- `wgl`: whether the operations on one object have a linear order, by search;
- `models`: the objects that it knows.
"""
