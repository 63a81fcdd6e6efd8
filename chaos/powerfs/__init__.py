"""A file system that can lose power, and be slow: what was not synced may be gone after a cut.

It passes everything on to a folder, and remembers how to take back what no fsync has covered yet.
At a cut it takes back some of it, drawn from a seeded source, and ends; what the folder holds then
is what a machine would find after its power came back. `fsync` and `fdatasync` of a file cover its
content, `fsync` of a directory the names in it, as POSIX promises and nothing beyond it.

`python -m lognode.chaos.powerfs FOLDER MOUNT_POINT` serves one mount until its standard input ends
or says `cut SEED`; the next mount is another process, so that no page of the old one survives.
`slow HOW` and `fast` change its pace.

- `files`: the content of one file; `names`: those of all directories. Pure: both only decide;
- `pace`: how long calls take;
- `backing`: the folder, with all of them applied;
- `mount`: the calls of FUSE on it, by mfusepy; `needs`: what that takes of a machine.
"""
