"""The metrics of a controller at /metrics."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.request import urlopen

import trio
from prometheus_client.parser import text_string_to_metric_families

from ottla.controller.controller_metrics import ControllerCounts, controller_registry
from ottla.controller.main_driver import serve_controller
from ottla.controller.mutation_quotas import MutationQuotas
from ottla.controller.own_telemetry_driver import unready_reason
from ottla.jepsen.in_memory_controller import InMemoryController
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.metadata.records import partition_change_record
from ottla.model.ids import NO_NODE, NodeId
from ottla.model.quotas.quota_limits import ClientEntity, QuotaEntity
from ottla.model.quotas.rates import THROTTLE_MS_MAX, WindowShape
from ottla.model.settings.controller import load_controller_config
from ottla.node.local.local_nodes_driver import free_port
from ottla.telemetry.metrics.prometheus_text import render
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest

PREFIX = "kafka_controller_kafkacontroller_"


def numbers(text: str) -> dict[str, float]:
    """Return the numbers without labels of a text, by name."""
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if not sample.labels
    }


def samples_of(
    image: Callable[[], MetadataImage], *, is_active: bool = True, wall_ms: int = 0
) -> dict[str, float]:
    registry = controller_registry(
        ControllerCounts(),
        is_active=lambda: is_active,
        image=image,
        committed_offset=lambda: 7,
        wall_ms=lambda: wall_ms,
        now_ms=lambda: 0,
        mutations=MutationQuotas(WindowShape()),
    )
    return numbers(b"".join(render(registry.collect())).decode())


def cluster_of_three() -> InMemoryController:
    cluster = InMemoryController()
    cluster.start(1, 2, 3)
    topics = [CreatableTopic(name=name, num_partitions=4, replication_factor=1) for name in "ab"]
    cluster.forward(CreateTopicsRequest(topics=topics))
    return cluster


def test_topics_partitions_and_brokers_are_counted() -> None:
    cluster = cluster_of_three()
    led_by_3 = [
        (name, at) for name in "ab" for at in range(4) if cluster.state(name, at).leader == 3
    ]
    cluster.kill(3)

    found = samples_of(lambda: cluster.image)

    assert found[f"{PREFIX}globaltopiccount"] == 2
    assert found[f"{PREFIX}globalpartitioncount"] == 8
    assert found[f"{PREFIX}offlinepartitionscount"] == len(led_by_3) > 0
    assert found[f"{PREFIX}preferredreplicaimbalancecount"] == len(led_by_3)
    assert (found[f"{PREFIX}activebrokercount"], found[f"{PREFIX}fencedbrokercount"]) == (2, 1)


def test_brokers_have_kafkas_numbers_of_their_states() -> None:
    cluster = cluster_of_three()
    cluster.kill(3)
    leaving = replace(cluster.image.brokers[NodeId(2)], in_controlled_shutdown=True)
    brokers = cluster.image.brokers.set(NodeId(2), leaving)
    image = replace(cluster.image, brokers=brokers)
    families = {
        each.name: each
        for each in controller_registry(
            ControllerCounts(),
            is_active=lambda: True,
            image=lambda: image,
            committed_offset=lambda: 0,
            wall_ms=lambda: 0,
            now_ms=lambda: 0,
            mutations=MutationQuotas(WindowShape()),
        ).collect()
        if each is not None
    }
    states = dict(filter(None, families[f"{PREFIX}brokerregistrationstate"].samples))
    assert states == {("1",): 30, ("2",): 20, ("3",): 10}
    (leaving_count,) = filter(None, families[f"{PREFIX}controlledshutdownbrokercount"].samples)
    assert leaving_count == ((), 1)


def test_a_standby_tells_how_far_behind_its_image_is() -> None:
    assert samples_of(lambda: EMPTY, is_active=False)[f"{PREFIX}activecontrollercount"] == 0
    assert samples_of(lambda: EMPTY, is_active=True)[f"{PREFIX}activecontrollercount"] == 1
    assert (
        samples_of(lambda: EMPTY, is_active=False, wall_ms=9)[f"{PREFIX}lastappliedrecordlagms"]
        == 0
    )
    assert samples_of(lambda: EMPTY)[f"{PREFIX}lastcommittedrecordoffset"] == 7


def test_elections_of_who_was_not_in_sync_are_counted() -> None:
    cluster = cluster_of_three()
    topic = cluster.image.topic("a")
    assert topic is not None
    leader = cluster.state("a", 0).leader
    other = NodeId(1 if leader != 1 else 2)
    counts = ControllerCounts()

    def elected(chosen: NodeId) -> int:
        record = partition_change_record(topic.id, 0, leader=chosen)
        counts.note_elections(cluster.image, [record])
        return counts.unclean_elections.value

    assert elected(leader) == 0
    assert elected(NO_NODE) == 0
    assert elected(other) == 1
    assert counts.eligible_elections.value == 0


async def test_a_lone_controller_tells_that_it_is_active(tmp_path: Path) -> None:
    port, metrics_port = free_port(), free_port()
    config, unknown = load_controller_config(
        {
            "node.id": "101",
            "controller.quorum.voters": f"101@127.0.0.1:{port}",
            "listeners": f"CONTROLLER://127.0.0.1:{port}",
            "metadata.log.dir": str(tmp_path),
            "metrics.prometheus.port": str(metrics_port),
            "metrics.prometheus.host": "127.0.0.1",
        }
    )
    assert not unknown
    is_ready, is_stopping = trio.Event(), trio.Event()

    def ask() -> str:
        with urlopen(f"http://127.0.0.1:{metrics_port}/metrics") as response:
            return str(response.read(), "utf-8")

    def probe() -> int:
        with urlopen(f"http://127.0.0.1:{metrics_port}/readyz") as response:
            return int(response.status)

    async def run() -> None:
        await serve_controller(config, ready=is_ready.set, is_stopping=is_stopping)

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await is_ready.wait()
            found = numbers(await trio.to_thread.run_sync(ask))
            assert await trio.to_thread.run_sync(probe) == 200
            is_stopping.set()

    assert found[f"{PREFIX}activecontrollercount"] == 1
    assert found["kafka_server_raft_metrics_current_leader"] == 101
    assert found["kafka_server_raft_metrics_append_records_rate"] > 0
    assert found["kafka_server_raft_metrics_commit_latency_max"] >= 0
    assert found["kafka_controller_controllereventmanager_eventqueuetimems_count"] > 0
    assert found["process_open_fds"] > 3
    for name in ("standing", "start_damages", "start_repairs", "start_lost_entries"):
        assert found[f"ottla_controller_{name}"] == 0


def test_clients_that_owe_mutations_have_a_series_until_they_saved_up_again() -> None:
    now_ms = 0
    mutations = MutationQuotas(WindowShape())
    registry = controller_registry(
        ControllerCounts(),
        is_active=lambda: True,
        image=lambda: EMPTY,
        committed_offset=lambda: 0,
        wall_ms=lambda: 0,
        now_ms=lambda: now_ms,
        mutations=mutations,
    )
    limits: dict[ClientEntity, dict[str, float]] = {
        (QuotaEntity("client-id", True, ""),): {"controller_mutation_rate": 2.0}
    }
    mutations.charge(
        limits, api_key=19, api_version=5, user="u", client_id="loader", now_ms=0
    ).take(32)

    def shown(name: str) -> list[tuple[object, object]]:
        (family,) = [
            one for one in registry.collect() if one is not None and one.name.endswith(name)
        ]
        return [one for one in family.samples if one is not None]

    assert shown("controllermutation_tokens") == [(("", "loader"), -10.0)]
    assert shown("controllermutation_throttle_time") == [(("", "loader"), 5_000)]
    least: dict[ClientEntity, dict[str, float]] = {
        (QuotaEntity("client-id", True, ""),): {"controller_mutation_rate": 5e-324}
    }
    mutations.charge(least, api_key=19, api_version=5, user="u", client_id="loader", now_ms=0)
    assert shown("controllermutation_throttle_time") == [(("", "loader"), THROTTLE_MS_MAX)]
    mutations.charge(limits, api_key=19, api_version=5, user="u", client_id="loader", now_ms=0)
    now_ms = 6_000
    assert shown("controllermutation_tokens") == [(("", "loader"), 2.0)]
    assert shown("controllermutation_throttle_time") == [(("", "loader"), 0)]
    now_ms = 16_000
    assert shown("controllermutation_tokens") == []


def test_a_controller_is_ready_when_it_leads_or_follows() -> None:
    def reason(*, is_leader: bool = False, knows: bool = True, is_caught_up: bool = True) -> str:
        found = unready_reason(is_leader=is_leader, knows_leader=knows, is_caught_up=is_caught_up)
        return found or "ready"

    assert reason() == reason(is_leader=True) == "ready"
    assert "knows no leader" in reason(knows=False)
    assert "not caught up" in reason(is_caught_up=False)
    assert "not loaded" in reason(is_leader=True, is_caught_up=False)
