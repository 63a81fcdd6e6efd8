# Generated from client/ by scripts/unasync; edit that.

"""The blocking SDK: twins of the async classes, on one loop thread a client."""

from .admin import Admin
from .appends import Ticket
from .client import Client
from .consumer import Consumer
from .cursor import KeptCursor
from .follow import Feed
from .group import Group
from .group_batch import GroupBatch
from .log import Log
from .producer import Producer
from .snapshot import Snapshot

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Feed",
    "Group",
    "GroupBatch",
    "KeptCursor",
    "Log",
    "Producer",
    "Snapshot",
    "Ticket",
]
