"""What both sides of a connection share: values, frames, and the table of messages.

The table says everything that travels between clients, nodes and Raft members. The values that
travel are beside it: `limits`, `errors`, `types`, `scopes`, `principal`, `key_spans`; batches of
records (`records`, `columns`, `packed`, `chunks`); bytes and frames (`frame`), the handshake
(`wire`) and what is under it (`address`, `tls`, `certificate`, `private_files`); and
`invariants`, which end a process that broke one. Nothing here uses anything else of lognode.

A message stands here once. Encoding, validation, routing, the reference in `docs/protocol.md` and
the fuzz tests are taken from this table; neither side has a second validator or the name of an
operation in a string.

The contract:

1. `kinds` says what one value may be: its type and its bounds, and `record` what a body may be. A
   kind checks a value, describes itself, and makes valid and invalid values for the tests.
2. `operation` says what one operation is: name, number on the wire, who may send it, the
   permission it needs and where that has to hold, whether a repetition is safe, the fields of its
   request and of its answer, and how many bytes the answer may have.
3. The tables are `frames` (what every connection speaks), `appends`, `reads`, `cluster` (metadata
   and administration), `quotas`, `invites`, `peers` (between nodes) and `raft_messages` (between
   members of a group); `common` has what several of them use. `table` joins them and finds an
   operation by its number. `meanings` and `peer_meanings` say what each field means.
4. The dialler checks a request before it sends it, the acceptor checks it again before a handler
   sees it. A handler gets a body whose fields all exist, have their type and lie within their
   bounds; a missing field has its default. Unknown fields are dropped, so that versions can mix.
5. A number is never used again for another operation. A new field is optional.

`tls` and `private_files` read files; nothing else here does I/O.
"""

from .operation import Operation, Permission, Retry, Sender, Subject
from .table import OPERATIONS, by_number, name_of

__all__ = [
    "OPERATIONS",
    "Operation",
    "Permission",
    "Retry",
    "Sender",
    "Subject",
    "by_number",
    "name_of",
]
