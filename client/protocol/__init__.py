"""The parts that both sides of a connection share: values, frames, and the table of messages.

The table describes everything that travels between clients, nodes and Raft members. Beside it are
the values that travel: `limits`, `limit_checks`, `levels`, `errors`, `types`, `scopes`,
`principal`, `characters`, `log_names`, `cleanups`, `key_spans`, `key_partitions`, `patterns`,
`cursor_json`; batches of records (`records`, `columns`, `key_column`, `packed`, `chunks`,
`entry_rows`, and compiled functions, `native`); bytes and frames (`frame`, `http_instead`), the
handshake (`wire`) and the layers under it (`address`, `tls`, `certificate`, `private_files`); and
`invariants`, which end a process that broke one.
Nothing here uses anything else of lognode.

Each message is defined here once. Encoding, validation, routing, the reference in
`docs/protocol.md` and the fuzz tests derive from this table; neither side has a second validator or
the name of an operation in a string.

The contract:

1. `kinds` defines what one value may be: its type and its bounds; `record` defines what a body may
be. A kind checks a value, describes itself, and makes valid and invalid values for the tests.
2. `operation` defines one operation: its name, its number on the wire, who may send it, the
permission that it needs and where the permission must hold, whether a repetition is safe, the
fields of its request and of its answer, and the maximum bytes of the answer.
3. The tables are `frames` (which every connection speaks), `appends`, `reads`, `partitions`,
`cursors`, `groups`, `views`, `cluster` (metadata and administration), `quotas`, `invites`,
`node_reports`, `peers` (between nodes) and `raft_messages` (between members of a group); `common`
has the parts that several of them use. `table` joins them and finds an operation by its number.
`meanings`, `log_meanings`, `cursor_meanings`, `group_meanings`, `view_meanings` and
`peer_meanings` describe each field.
4. The dialler checks a request before it sends it, and the acceptor checks it again before a
handler sees it. A handler gets a body whose fields all exist, have their type and lie within their
bounds; a missing field has its default. Unknown fields are dropped, so versions can mix.
5. A number is never reused for another operation. A new field is optional.

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
