"""DescribeNode, our own: state, recovery and numbers."""

from collections.abc import Callable
from typing import Any

from ottla.wire.messages.describe_node_request import DescribeNodeRequest

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


async def test_describe_node_tells_the_state_the_recovery_and_the_numbers(
    new_client: NewClient,
) -> None:
    answer = await new_client().ask(DescribeNodeRequest(), 0)
    assert (answer.node_id, answer.state) == (1, "RECOVERY")
    assert [(r.log_dir, r.remaining_logs, r.bytes_done) for r in answer.recovery] == [
        ("/data", 3, 400)
    ]
    assert [(m.name, m.value) for m in answer.metrics] == [("a", 1.0), ("b", 2.0)]
