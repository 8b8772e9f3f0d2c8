"""Encoder and decoder of a log directory's `lost-logs` file: losses of replicas that are not
complete again yet. Pure.

The format is JSON, so that an operator can read it: a version, and one object for each loss. If a
broker finds a loss at startup, it writes the file before it continues. Without the file, the next
startup would consider the replica complete.
"""

import json
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from ottla.model.errors import CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.losses.log_losses import LogLoss, LossKind

LOST_LOGS_FILE = "lost-logs"
VERSION = 0


def format_losses(losses: Iterable[LogLoss]) -> bytes:
    """Return the bytes of a `lost-logs` file that describes `losses`."""
    lines = [
        {
            "topicId": str(loss.topic_id),
            "topic": loss.partition.topic,
            "partition": loss.partition.partition,
            "kind": loss.kind.value,
            "promisedEndOffset": loss.promised_end_offset,
            "foundEndOffset": loss.found_end_offset,
            "reason": loss.reason,
        }
        for loss in losses
    ]
    return json.dumps({"version": VERSION, "losses": lines}, indent=1).encode()


def parse_losses(data: bytes, directory: str) -> list[LogLoss]:
    """Return the losses that the bytes of a `lost-logs` file describe. `directory` is the path of
    its log directory.

    Raises CorruptDataError if the file is malformed.
    """
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise CorruptDataError(f"{LOST_LOGS_FILE}: its version is not {VERSION}")
        return [_loss(line, directory) for line in content["losses"]]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CorruptDataError(f"{LOST_LOGS_FILE}: not the format") from None


def _loss(line: dict[str, Any], directory: str) -> LogLoss:
    promised = line["promisedEndOffset"]
    return LogLoss(
        topic_id=UUID(line["topicId"]),
        partition=TopicPartition(str(line["topic"]), int(line["partition"])),
        directory=directory,
        kind=LossKind(line["kind"]),
        promised_end_offset=None if promised is None else Offset(int(promised)),
        found_end_offset=Offset(int(line["foundEndOffset"])),
        reason=str(line["reason"]),
    )
