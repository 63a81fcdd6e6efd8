"""A file system that can lose power, and be slow: unsynced data may be gone after a cut.

It passes every call on to a folder, and keeps what it needs to undo changes that no fsync has
covered yet. At a cut it undoes some of these changes, drawn from a seeded source, and ends. The
folder then has the content that a machine would find after its power came back. `fsync` and
`fdatasync` of a file cover its content, `fsync` of a directory covers the names in it, as POSIX
promises, and no more.

`python -m lognode.chaos.powerfs FOLDER MOUNT_POINT` serves one mount until its standard input ends
or says `cut SEED`. The next mount is another process, so that no page of the old one survives.
`slow HOW` and `fast` change its pace.

- `files`: the content of one file; `names`: the names in all directories. Both are pure, and only
  decide;
- `pace`: how long calls take;
- `backing`: the folder, to which all of them are applied;
- `mount`: the calls of FUSE on it, by mfusepy; `needs`: the requirements on the machine.
"""
