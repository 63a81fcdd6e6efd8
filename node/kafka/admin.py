"""Requests of administrators about topics: settings that change, and records that are removed.

`cleanup.policy` and `retention.ms` are rules of the log, and change by one command of the cluster,
so a change is made as a whole or not at all. A topic keeps its number of partitions for ever, as
the partition of a key follows from the number.

Records of a partition are removed below an offset by one command of the partition's range
(`client.partition_tails`). The answer names the first offset that is left. "All records" means the
end that the partition has when the request comes: a repetition by this node removes nothing that
came later. Other nodes learn of the new begin with the next record, and when somebody asks for
offsets there; until then a fetch below the begin gets the first records that are left.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ...client.cluster import Cluster
from ...client.partition_tails import trim_partition
from ...client.protocol.cluster import ALTER_LOG
from ...client.protocol.errors import InvalidArgument, LognodeError, LogNotFound, Unsupported
from ...partitions import policy
from . import admin_answers, admin_requests, api, codes, requests
from .admin_answers import Trimmed
from .admin_requests import APPEND, DELETE, SET, SUBTRACT, Alter, Altered, Change, Trim
from .answers import Done, Settings
from .api import Head
from .codes import code_of
from .describing import (
    CLEANUP,
    RETENTION,
    TOPIC,
    Authorise,
    Describing,
    cleanup_of,
    elements,
    retention_ms,
    wrong_setting,
)
from .many import decoded, encoded
from .refused import Refused
from .topics import Topics

APIS: Final = frozenset({
    api.ALTER_CONFIGS, api.INCREMENTAL_ALTER_CONFIGS, api.CREATE_PARTITIONS, api.DELETE_RECORDS,
})  # fmt: skip
_TIMEOUT_S: Final = 10.0
_AT_ONCE: Final = 16
"""Partitions whose records are removed at the same time."""
_ALL: Final = -1
_DEFAULTS: Final[Mapping[str, Any]] = {"cleanup": "delete", "retention_ms": None}


class Admin:
    """Serves the requests of the clients that show one token."""

    def __init__(self, cluster: Cluster, topics: Topics, describing: Describing) -> None:
        self._cluster = cluster
        self._topics = topics
        self._describing = describing

    async def answer(self, data: bytes, head: Head, authorise: Authorise) -> bytes:
        """Return the body of the answer to one of `APIS`. Raises Malformed."""
        if head.api == api.CREATE_PARTITIONS:
            grown = await decoded(data, admin_requests.create_partitions)
            refused = [await self._refused_growth(name) for name, _ in grown]
            return await encoded(len(refused), admin_answers.create_partitions, refused)
        if head.api == api.DELETE_RECORDS:
            trims = await decoded(data, admin_requests.delete_records)
            requests.check_no_repeats([(each.topic, each.partition) for each in trims])
            trimmed = await self._trim_all(trims)
            return await encoded(len(trimmed), admin_answers.delete_records, trimmed)
        if head.api == api.ALTER_CONFIGS:
            asked = await decoded(data, admin_requests.alter_configs)
        else:
            asked = await decoded(data, admin_requests.incremental_alter_configs)
        altered = [await self._alter(each, asked, authorise) for each in asked.resources]
        return await encoded(len(altered), admin_answers.alter_configs, altered)

    # Settings.

    async def _alter(self, asked: Altered, request: Alter, authorise: Authorise) -> Settings:
        if asked.kind != TOPIC:
            told = (
                f"resources of type {asked.kind} have no settings that a client changes; give 2, a "
                "topic. The settings of a node are in its command line"
            )
            return Settings(asked.kind, asked.name, codes.INVALID_REQUEST, told)
        try:
            authorise(ALTER_LOG, {"name": asked.name, "changes": {}})
            known = (await self._describing.described(asked.name))["policy"]
            changes = _changes(asked, known["cleanup"])
            if changes and request.validate_only:
                rules = {name: known.get(name) for name in policy.ALTERABLE}
                policy.altered(policy.Policy(**rules), policy.check_changes(changes))
            elif changes:
                body = {"name": asked.name, "changes": changes}
                await self._cluster.call_any(ALTER_LOG, body, deadline=self._deadline())
        except Refused as refusal:
            return Settings(asked.kind, asked.name, refusal.code, str(refusal))
        except (InvalidArgument, Unsupported) as error:
            return Settings(asked.kind, asked.name, codes.INVALID_CONFIG, error.message)
        except LognodeError as error:
            return Settings(asked.kind, asked.name, self._failed(asked.name, error), error.message)
        return Settings(asked.kind, asked.name)

    async def _refused_growth(self, name: str) -> Done:
        try:
            log = await self._describing.described(name)
        except InvalidArgument as error:
            return Done(name, codes.INVALID_TOPIC, error.message)
        except LognodeError as error:
            return Done(name, self._failed(name, error), error.message)
        told = (
            f"topic {name!r} has {log['policy']['kafka_partitions']} partitions, and keeps this "
            "number: the partition of a key follows from it. Create another topic"
        )
        return Done(name, codes.INVALID_PARTITIONS, told)

    # Records.

    async def _trim_all(self, trims: list[Trim]) -> list[Trimmed]:
        found: list[Trimmed] = []
        for at in range(0, len(trims), _AT_ONCE):
            found += await asyncio.gather(*map(self._trim, trims[at : at + _AT_ONCE]))
        return found

    async def _trim(self, asked: Trim) -> Trimmed:
        deadline = self._deadline()
        try:
            topic = await self._topics.known(asked.topic, deadline)
            topic.check(asked.partition)
            before = asked.offset
            if before == _ALL:
                before = (await topic.news.ask(asked.partition, deadline)).end
            if before < 0:
                return Trimmed(asked.topic, asked.partition, codes.OFFSET_OUT_OF_RANGE)
            begin = await trim_partition(
                self._cluster, topic.routes, asked.partition, before, deadline
            )
            topic.news.begins(asked.partition, begin)
            return Trimmed(asked.topic, asked.partition, begin=begin)
        except Refused as refusal:
            return Trimmed(asked.topic, asked.partition, refusal.code)
        except InvalidArgument:
            return Trimmed(asked.topic, asked.partition, codes.OFFSET_OUT_OF_RANGE)
        except LognodeError as error:
            return Trimmed(asked.topic, asked.partition, self._failed(asked.topic, error))

    def _failed(self, topic: str, error: LognodeError) -> int:
        if isinstance(error, LogNotFound):
            self._topics.gone(topic)
        return code_of(error)

    def _deadline(self) -> float:
        return self._cluster.now() + _TIMEOUT_S


def _changes(asked: Altered, cleanup: str) -> dict[str, Any]:
    """Return the rules of the log that change. `cleanup`: the present rule. Raises Refused for a
    setting that is not one."""
    found: dict[str, Any] = dict(_DEFAULTS) if asked.is_whole else {}
    for change in asked.changes:
        name, action, value = change
        if action in (APPEND, SUBTRACT):
            value = _changed_list(change, found.get("cleanup", cleanup))
        elif action == DELETE:
            value = None
        elif action != SET:
            told = f"{name:.100}: no change has the number {action}; give 0 to 3"
            raise Refused(codes.INVALID_CONFIG, told)
        wrong = wrong_setting(name, value)
        if wrong is not None:
            raise Refused(codes.INVALID_CONFIG, wrong)
        if name == CLEANUP:
            found["cleanup"] = _DEFAULTS["cleanup"] if value is None else cleanup_of(value)
        elif name == RETENTION:
            found["retention_ms"] = retention_ms(value)
    return found


def _changed_list(change: Change, now: str) -> str:
    """Return a list with more or fewer elements than `now`. Raises Refused for another setting than
    the list of policies, and for a list without elements."""
    if change.name != CLEANUP:
        told = f"{change.name:.100} has no elements to add or to take away. Set the whole value"
        raise Refused(codes.INVALID_CONFIG, told)
    has, named = elements(now), elements(change.value or "")
    left = has | named if change.action == APPEND else has - named
    if not left:
        told = f"{CLEANUP} would have no element. Set {CLEANUP} to what is to stay"
        raise Refused(codes.INVALID_CONFIG, told)
    return ",".join(sorted(left))
