# Generated from client/ by scripts/unasync; edit that.

"""The blocking SDK: twins of the async classes, on one loop thread a client."""

from .admin import Admin
from .appends import Ticket
from .client import Client
from .cursor import KeptCursor
from .follow import Feed
from .log import Log
from .producer import Producer
from .snapshot import Snapshot

__all__ = ["Admin", "Client", "Feed", "KeptCursor", "Log", "Producer", "Snapshot", "Ticket"]
