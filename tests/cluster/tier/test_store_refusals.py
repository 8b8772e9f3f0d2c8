"""An S3 server that refuses running brokers: the change that begins tiered storage of a topic is
refused in one sentence, and the topic stays as it was.

The server is gofakes3, behind a proxy that can answer 403, as S3 does for withdrawn credentials.
"""

import http.client
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from ottla.broker.tier.store_check_driver import CHECK_AGAIN_S
from ottla.jepsen.processes.object_store import BUCKET, access_settings, server_command
from ottla.storage.tier.cluster_marker import MARKER_KEY, encode_cluster_marker

SERVER = shutil.which("gofakes3")
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(300),  # a command that hangs fails
    pytest.mark.skipif(
        SERVER is None, reason="LOUD: no gofakes3 on PATH; refusals of an S3 server were NOT tested"
    ),
    pytest.mark.skipif(
        find_spec("obstore") is None, reason="needs obstore: pip install -e '.[tiered]'"
    ),
]
Processes = Any  # the class of the fixtures, in conftest.py
HOST, PREFIX, TOPIC = "127.0.0.1", "one", "local"
METADATA = "rlmm_config_remote_log_metadata_topic_"
DENIED = (
    b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>InvalidAccessKeyId</Code><Message>The AWS'
    b" Access Key Id you provided does not exist in our records.</Message></Error>"
)


class Proxy(ThreadingHTTPServer):
    """A proxy before an S3 server."""

    is_denying = False
    denied_count = 0

    def __init__(self, target_port: int) -> None:
        super().__init__((HOST, 0), _Handler)
        self.target_port = target_port


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.is_denying:
            self.server.denied_count += 1
            self._answer(403, {"Content-Type": "application/xml"}, DENIED)
            return
        target = http.client.HTTPConnection(HOST, self.server.target_port, timeout=30)
        target.request(self.command, self.path, body, dict(self.headers))
        found = target.getresponse()
        self._answer(found.status, dict(found.getheaders()), found.read())
        target.close()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                self.send_header(name, value)
        size = headers.get("Content-Length") if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", size or "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


for method in ("GET", "PUT", "HEAD", "POST", "DELETE"):
    setattr(_Handler, f"do_{method}", _Handler._handle)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    assert SERVER is not None
    directory = tmp_path / "s3"
    directory.mkdir()
    with socket.create_server((HOST, 0)) as probe:
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        server_command(SERVER, directory, HOST, port), stderr=subprocess.DEVNULL
    )
    server = Proxy(port)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    process.kill()
    process.wait()


def begin_tiering(cluster: Processes) -> list[str]:
    """Try to begin tiered storage of the topic. Return the lines of the command's refusal."""
    words = ("config", "set", "--topic", TOPIC, "remote.storage.enable=true")
    done = cluster.ottla(*words, code=1)
    lines: list[str] = done.stderr.strip().splitlines()
    return lines


def test_a_topic_stays_local_if_the_store_refuses_the_brokers(
    plan_cluster: Callable[..., Processes], proxy: Proxy
) -> None:
    access = access_settings(HOST, proxy.server_port)
    cluster: Processes = plan_cluster(
        remote_log_storage_system_enable="true",
        remote_log_storage_uri=f"s3://{BUCKET}/{PREFIX}",
        **{key.replace(".", "_"): value for key, value in access.items()},
        **{f"{METADATA}num_partitions": "1", f"{METADATA}replication_factor": "1"},
        **{f"{METADATA}min_isr": "1"},
    )
    cluster.start("controller", "broker")
    cluster.wait_healthy()
    admin = AdminClient(dict(cluster.client))
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)

    proxy.is_denying = True
    denied = begin_tiering(cluster)
    proxy.is_denying = False
    assert proxy.denied_count
    assert len(denied) == 1
    assert "remote.storage.enable: the object store refuses the credentials" in denied[0]

    target = http.client.HTTPConnection(HOST, proxy.target_port, timeout=30)
    target.request("PUT", f"/{BUCKET}/{PREFIX}/{MARKER_KEY}", encode_cluster_marker("strangers"))
    assert target.getresponse().status == 200
    target.close()
    time.sleep(CHECK_AGAIN_S)
    foreign = begin_tiering(cluster)
    assert len(foreign) == 1
    assert "this prefix of the object store belongs to cluster strangers" in foreign[0]

    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    found = admin.describe_configs([resource])[resource].result(30)
    assert found["remote.storage.enable"].value == "false"
