"""Workloads by name."""

import random
from collections.abc import Callable, Sequence

from ..plan import WORKLOADS
from . import Workload
from .append import AppendWorkload
from .exactly_once import ExactlyOnceWorkload
from .follow import FollowWorkload
from .groups import GroupWorkload
from .kafka import KafkaWorkload
from .register import RegisterWorkload
from .sets import SetWorkload
from .snapshots import SnapshotWorkload
from .views import ViewWorkload

_KINDS: Sequence[Callable[[random.Random], Workload]] = (
    AppendWorkload, FollowWorkload, RegisterWorkload, SetWorkload, ExactlyOnceWorkload,
    SnapshotWorkload, GroupWorkload, ViewWorkload, KafkaWorkload,
)  # fmt: skip


def workload_of(name: str, rng: random.Random) -> Workload:
    """Return a new workload; `name` is one of WORKLOADS."""
    return dict(zip(WORKLOADS, _KINDS, strict=True))[name](rng)
