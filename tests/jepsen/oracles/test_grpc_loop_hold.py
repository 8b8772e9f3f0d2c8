"""Cost of one gRPC request for a controller of 2,000 partitions.

Every third request is sent, with OTTLA_WORLDS=full every one. OTTLA_ORACLE_VERSIONS=all asks in
every version of the clients' requests.

The seed of a run is OTTLA_ORACLE_SEED, so that it can be repeated.
"""

import os
from pathlib import Path

from tests.jepsen.oracles.grpc_loop_hold import open_target, too_costly
from tests.jepsen.search_length import length

SEED = int(os.environ.get("OTTLA_ORACLE_SEED", "1"))
IS_EVERY_VERSION = os.environ.get("OTTLA_ORACLE_VERSIONS") == "all"


async def test_no_grpc_request_holds_a_controllers_loop_or_takes_its_memory(tmp_path: Path) -> None:
    async with open_target(tmp_path / "controller") as target:
        found = await too_costly(
            target,
            SEED,
            is_every_version=IS_EVERY_VERSION,
            stride=length(3, 1),
            on_cost=lambda _: None,
        )
    assert not found, "\n".join(map(str, found))
