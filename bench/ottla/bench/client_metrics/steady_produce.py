"""Small produce requests at a steady rate, one after the other, until the process is stopped.

`python -m ottla.bench.client_metrics.steady_produce HOST PORT TOPIC RATE` runs in a process of its
own, so that no other load can delay it.  When its standard input ends, it prints a line for each
request. The line has the send time by the machine's monotonic clock and the latency of the
response, both in seconds.
"""

import select
import socket
import sys
import time
from statistics import quantiles

from ottla.bench.helper_process import HelperProcess
from ottla.bench.requests import PRODUCE_VERSION, RequestLatency, dial, small_request
from ottla.model.errors import ErrorCode, OttlaError
from ottla.model.ids import ZERO_UUID
from ottla.wire import codec, headers
from ottla.wire.messages.produce_request import ProduceRequest
from ottla.wire.messages.produce_response import ProduceResponse


class SteadyProduce(HelperProcess):
    """Context manager that runs a producer at a steady rate in a separate process. After the block,
    `waited` contains the send times and latencies of its requests."""

    name = "the producer"

    def __init__(self, address: tuple[str, int], topic: str, rate: int) -> None:
        module = "ottla.bench.client_metrics.steady_produce"
        super().__init__(module, address[0], str(address[1]), topic, str(rate))
        self.waited: list[RequestLatency] = []

    def take(self, words: list[str]) -> None:
        """Parse one line that the process has printed, given as words, and store the latency of a
        produce request."""
        sent_at, seconds = words
        self.waited.append(RequestLatency(float(sent_at), float(seconds)))

    def p99_ms(self, began_at: float, ended_at: float) -> float:
        """Return the 99th percentile of request latencies in milliseconds. Only requests sent
        between the two given times count. The times are seconds of the machine's monotonic
        clock."""
        seen = [each.seconds for each in self.waited if began_at <= each.sent_at < ended_at]
        return 1e3 * quantiles(seen, n=100)[-1]


def main(host: str, port: str, topic: str, rate: str) -> None:
    """Send produce requests at a steady rate until standard input ends, then print the
    latencies."""
    waited = []
    frame = small_request("produce", topic, ZERO_UUID).frame
    with dial((host, int(port))) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = client.makefile("rb")
        due = time.perf_counter()
        while True:
            due = max(due + 1 / float(rate), time.perf_counter())
            if select.select([sys.stdin], [], [], max(0.0, due - time.perf_counter()))[0]:
                break
            sent_at = time.perf_counter()
            client.sendall(frame)
            answer = stream.read(int.from_bytes(stream.read(4), "big"))
            waited.append((sent_at, time.perf_counter() - sent_at))
            _check(answer)
    print("\n".join(f"{sent_at:.6f} {seconds:.6f}" for sent_at, seconds in waited))


def _check(answer: bytes) -> None:
    _, at = headers.decode_response_header(ProduceRequest.API_KEY, PRODUCE_VERSION, answer)
    found = codec.decode(ProduceResponse, PRODUCE_VERSION, memoryview(answer)[at:])
    error = found.responses[0].partition_responses[0].error_code
    if error:
        raise OttlaError(f"a produce is answered with {ErrorCode(error).name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
