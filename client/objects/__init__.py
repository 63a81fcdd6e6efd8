"""client/objects: stores for objects outside of a cluster, a directory or a bucket in S3.

    store           the interface `ObjectStore`, and what names and answers are allowed
    directory       a directory of files
    s3              a bucket of an S3-compatible store, by the library obstore
    s3_credentials  the keys: from the environment, a profile, a program, the machine
    s3_errors       what an error of obstore means, and whether the request is worth a repetition
    s3_settings     region and endpoint: from flags, the environment and files of AWS
    places          the store that a text names, as `s3://bucket/prefix` or a path

The contract:

- An object has a name and a content, and appears whole or not at all. When `put` returns, the
  object is durable, and `get` and `objects` of all readers find the object.
- `put` without `replace` never changes an object. One of two writers of a name wins, and the
  other writer gets False.
- A store keeps names and bytes, and knows nothing of their meaning. A store may return wrong bytes:
  callers check hashes. A caller says how many bytes it is ready to take, and gets no more.
- All methods block, for milliseconds to the patience of the store: call them in a thread. A store
  may be used by several threads at once.
- Each error is a LognodeError with the field `store`. Unavailable says that the store gave no
  useful answer in time, and the same call may succeed later. A `put` that raised may have stored
  the object; calling `put` again is safe.

Backups and the tier of a cluster use stores.
"""
