"""Put messages to nodes and take their replies as they come: what both engines of this room do with Flower's Grid."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any

from flwr.app import Message, RecordDict

from ilk.engines.flower.wire import Parcel, pack

ASK = "query.ilk"
log = logging.getLogger("ilk.flower")


def exchange(
    grid: Any,
    parcels: Mapping[int, Parcel],
    round: int,
    patience: float | None,
    pause: float,
    lost: Callable[[], Container[int]] = lambda: (),
) -> Iterator[tuple[int, RecordDict]]:
    """Send each node its parcel; yield a node and its reply as they come, until all have or patience ends.

    `lost` is called between: it returns nodes that will not answer any more, or raises when nobody will.
    A node that Flower says cannot answer, or whose app failed, is left out, and the log says why.
    """
    messages = [
        Message(pack(parcel), dst_node_id=node, message_type=ASK, group_id=str(round))
        for node, parcel in parcels.items()
    ]
    waiting: dict[str, int] = {}
    for message in messages:  # one at a time: together they may be more than one request can hold
        node = message.metadata.dst_node_id
        sent = [name for name in grid.push_messages([message]) if name]
        if sent:
            waiting[sent[0]] = node
        else:
            log.warning("Flower did not take the message to node %s", node)
    del messages
    end = None if patience is None else time.monotonic() + patience
    while waiting:
        replies = list(grid.pull_messages(list(waiting)))
        for reply in replies:
            answered = waiting.pop(reply.metadata.reply_to_message_id, None)
            if answered is None:
                continue
            if reply.has_error():
                log.warning("node %s: %s", answered, str(reply.error.reason)[:500])
            else:
                yield answered, reply.content
        if end is not None and time.monotonic() > end:
            log.warning("%d did not answer within %.0f s", len(waiting), patience)
            return
        gone = lost()
        for name in [name for name, node in waiting.items() if node in gone]:
            log.warning("node %s was started anew, and has lost the question", waiting.pop(name))
        if waiting and not replies:
            time.sleep(pause)
