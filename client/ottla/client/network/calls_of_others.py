"""Error messages for methods that exist in aiokafka, confluent-kafka or kafka-python, but not in
Ottla's clients.

If a program that was written for one of these clients calls such a method, the AttributeError names
the corresponding method of Ottla.
"""

from collections.abc import Iterable
from typing import NoReturn

BLOCK = "the `async with` block opens and closes the client"
IN_TRANSACTION = "write `async with producer.transaction() as transaction:`"
MANY = "write `await producer.send_many(topic, records)`"
COUNTERPARTS = {
    "start": BLOCK,
    "stop": BLOCK,
    "close": BLOCK,
    "produce": "write `await producer.send(topic, value, key=key)`",
    "send_and_wait": "write `await (await producer.send(topic, value))`",
    "create_batch": MANY,
    "send_batch": MANY,
    "produce_batch": MANY,
    "init_transactions": IN_TRANSACTION,
    "begin_transaction": IN_TRANSACTION,
    "commit_transaction": IN_TRANSACTION,
    "abort_transaction": IN_TRANSACTION,
    "send_offsets_to_transaction": "write `await transaction.send_offsets(offsets, group)`",
    "getmany": "write `await consumer.poll(timeout_s)`, which returns a list",
    "getone": "write `await consumer.poll(record_count_max=1)`",
    "consume": "write `await consumer.poll(timeout_s, record_count_max=count)`",
    "get_watermark_offsets": "call `beginning_offsets` and `end_offsets`",
    "highwater": "call `end_offsets`",
    "store_offsets": "set `enable_auto_commit=False` and call `commit`",
}
"""Methods or expressions of Ottla that replace the methods of other Python clients, by the name of
the replaced method. Error messages contain them."""


class _Counterpart:
    """Attribute whose value cannot be read: the read raises the AttributeError for a method that
    only other Python clients have."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, client: object, kind: type) -> NoReturn:
        text = f"{kind.__name__!r} object has no attribute {self._name!r}"
        # Without `obj`, Python suggests no similar name of its own.
        raise AttributeError(f"{text}; {COUNTERPARTS[self._name]}", name=self._name)


class CallsOfOthers:
    """Base class of clients. Access to a method that only other Python clients have raises an
    AttributeError that names the corresponding method of Ottla."""

    def __dir__(self) -> Iterable[str]:
        return [
            name for name in super().__dir__() if name not in COUNTERPARTS or hasattr(self, name)
        ]


# Not `__getattr__`: with it, the interpreter reads each attribute of a client more slowly, even one
# that exists, such as `send`.
for _name in COUNTERPARTS:
    setattr(CallsOfOthers, _name, _Counterpart(_name))


__all__ = ["CallsOfOthers"]
