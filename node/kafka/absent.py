"""Create topics that clients name before the topics exist, as a broker of Kafka may.

The client of the cluster that serves the request creates the topic, so the token needs the right to
do so. Several nodes may create a topic at the same moment: the first one succeeds, and the others
find the topic. A client whose topic is not there yet asks again after LEADER_NOT_AVAILABLE.
"""

from collections.abc import Sequence
from typing import Final

from . import codes
from .answers import Topic
from .describing import Describing
from .requests import CreateTopics, NewTopic

_AT_ONCE: Final = 16
"""Topics that one request for metadata creates; the client asks again for the others."""
_DEFAULT: Final = -1
_TOLD: Final = frozenset({codes.INVALID_TOPIC, codes.TOPIC_AUTHORIZATION_FAILED})
"""Errors that no later attempt changes."""
_LATER: Final = frozenset({
    codes.NOT_LEADER_OR_FOLLOWER, codes.NOT_ENOUGH_REPLICAS, codes.REQUEST_TIMED_OUT
})  # fmt: skip
"""Errors of an attempt that may be repeated."""


async def created(topics: Sequence[Topic], describing: Describing) -> list[Topic]:
    """Return the topics, and create absent topics if the node does so. Raises Unavailable,
    Timeout."""
    found, left = [], _AT_ONCE
    for topic in topics:
        if topic.error != codes.UNKNOWN_TOPIC_OR_PARTITION or not describing.auto_partitions:
            found.append(topic)
        elif not left:
            found.append(Topic(topic.name, codes.LEADER_NOT_AVAILABLE))
        else:
            left -= 1
            found.append(await _created(topic, describing))
    return found


async def _created(topic: Topic, describing: Describing) -> Topic:
    wanted = NewTopic(topic.name, describing.auto_partitions, _DEFAULT, assigned=False, configs={})
    asked = CreateTopics([wanted], 0, validate_only=False)
    (done,) = await describing.create(asked, _leave_to_the_cluster)
    if done.error in (codes.NONE, codes.TOPIC_ALREADY_EXISTS):
        return (await describing.topics([topic.name]))[0]
    if done.error in _LATER:
        return Topic(topic.name, codes.LEADER_NOT_AVAILABLE)
    return Topic(topic.name, done.error) if done.error in _TOLD else topic


def _leave_to_the_cluster(*_: object) -> None:
    """Allow: the nodes that create a topic check the rights."""
