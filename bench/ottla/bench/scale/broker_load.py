"""Small requests to one broker, as a process of its own.

`python -m ottla.bench.scale.broker_load HOST:PORT KIND TOPIC COUNT` sends a tenth of the requests
to warm up, prints a line, waits for a line from its standard input, and then sends all requests.
Several of these processes, one for each broker, can so begin at the same time and use several
cores.
"""

import sys
from collections.abc import Sequence

from ottla.bench.requests import run_requests
from ottla.model.settings.endpoints import parse_bootstrap

CONNECTIONS, IN_FLIGHT = 10, 5
WARM_UP_SHARE = 0.1
READY = "ready"


def main(arguments: Sequence[str]) -> None:
    """Send the requests that the command-line arguments describe, after a line was read."""
    address, kind, topic, count = arguments

    def send(number: int) -> None:
        run_requests(
            parse_bootstrap(address)[0],
            kind=kind,
            topic=topic,
            count=number,
            connections=CONNECTIONS,
            in_flight=IN_FLIGHT,
            progress=lambda done: None,
        )

    send(max(1, round(WARM_UP_SHARE * int(count))))
    print(READY, flush=True)
    sys.stdin.readline()
    send(int(count))


if __name__ == "__main__":
    main(sys.argv[1:])
