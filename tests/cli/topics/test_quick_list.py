"""The fast topic list has the same output as the general one, and leaves unusual cases to it."""

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from ottla.cli.common import CONNECTION, plain_bootstrap_of
from ottla.cli.options import declare_options
from ottla.client import open_admin, open_producer
from ottla.testing.in_process import InProcessCluster, open_in_process_cluster


def arguments_of(*texts: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    declare_options(parser, CONNECTION)
    return parser.parse_args(texts)


def list_topics(bootstrap: str, before: str = "pass") -> tuple[str, set[str]]:
    """List topics in a process of its own; return its output and the modules it had loaded."""
    script = (
        f"import sys; {before}; from ottla.cli.main import run;"
        f"assert run(['topic', 'list', '--bootstrap-server', {bootstrap!r}]) == 0;"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout, set(done.stderr.splitlines())


async def listed(
    cluster: InProcessCluster, before: str = "pass", bootstrap: str = ""
) -> tuple[str, set[str]]:
    return await trio.to_thread.run_sync(list_topics, bootstrap or cluster.bootstrap, before)


async def test_both_lists_show_the_same() -> None:
    async with open_in_process_cluster(broker_count=2) as cluster:
        async with open_admin(cluster.bootstrap) as admin, open_producer(cluster.bootstrap) as to:
            await admin.create_topic("orders", partition_count=3, replication_factor=2)
            await (await to.send("orders", b"one"))
        quick, loaded = await listed(cluster)
        assert "orders           3         2" in quick
        assert loaded.isdisjoint({"trio", "asyncio", "ottla.cli.topics.topic_list"})
        patient, loaded = await listed(
            cluster, "import ottla.cli.topics.quick_list as q; q.BROKERS_MAX = 0"
        )
        assert "ottla.cli.topics.topic_list" in loaded
        assert patient == quick


async def test_a_first_broker_that_is_gone_is_passed_over() -> None:
    async with open_in_process_cluster(broker_count=1) as cluster:
        _, loaded = await listed(cluster, bootstrap=f"127.0.0.1:1,{cluster.bootstrap}")
        assert "ottla.cli.topics.topic_list" in loaded


def test_who_logs_in_asks_by_the_patient_way(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\n")
    assert plain_bootstrap_of(arguments_of("--command-config", str(file))) is None
    file.write_text("bootstrap.servers=b:1\n")
    assert plain_bootstrap_of(arguments_of("--command-config", str(file))) == (("b", 1),)


def test_a_local_cluster_that_is_secure_is_asked_by_the_patient_way(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"bootstrap": "b:1"}')
    ask = partial(plain_bootstrap_of, arguments_of("--dir", str(tmp_path)))
    assert ask() == (("b", 1),)
    (tmp_path / "client.properties").write_text("security.protocol=SSL\n")
    assert ask() is None
