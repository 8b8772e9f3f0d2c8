"""The objects of a controller that answer Kafka clients, and their wiring. Pure.

A controller serves the requests that the Admin client of Kafka 4.4 sends to
`bootstrap.controllers`. Changes are made and authorized by the same decisions as forwarded
requests. A controller that is not active refuses changes with NOT_CONTROLLER, and the client then
finds the active controller with DescribeCluster. Clients log in as at a broker, and the same gates
check their permissions.
"""

from collections.abc import Callable
from functools import partial
from uuid import UUID

from ottla.controller.kafka.describe_controllers import DescribeControllersApi, KnownControllers
from ottla.controller.kafka.own_settings import ControllerSettings, obstacle_of
from ottla.metadata.image import MetadataImage
from ottla.metadata.publisher import Publisher
from ottla.metadata.standard_authorizer import StandardAuthorizer
from ottla.model.quotas.quota_callback import CustomLimits, load_callback
from ottla.model.seams import Clock, Rng
from ottla.model.settings.controller import ControllerConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.node.admin.admin_api import AdminApi
from ottla.node.admin.alter_configs import AlterLoggersApi
from ottla.node.admin.api_versions import ApiVersionsApi
from ottla.node.admin.describe_acls import DescribeAclsApi
from ottla.node.admin.describe_configs import DescribeConfigsApi
from ottla.node.admin.forwarding import ForwardingPort
from ottla.node.admin.log_levels import LogLevels
from ottla.node.admin.metadata_cache import ImageWatch, MetadataCache
from ottla.node.authentication.authenticators import Authenticators
from ottla.node.authentication.illegal_state import register_sasl_apis
from ottla.node.authorization.authorization import Authorization
from ottla.node.network.dispatch import Dispatcher
from ottla.node.network.purgatory import Purgatory
from ottla.node.quotas.request_quotas import RequestQuotas
from ottla.wire import apis

DECIDED_MS_MAX = 30_000
"""Timeout in ms of a change that a client requests: Kafka's default of `request.timeout.ms`. A
change that is not committed in time is refused as timed out."""

FORWARDED = (
    apis.DESCRIBE_QUORUM,
    apis.ADD_RAFT_VOTER,
    apis.REMOVE_RAFT_VOTER,
    apis.UNREGISTER_CONTROLLER,
    apis.UNREGISTER_BROKER,
    apis.UPDATE_FEATURES,
    apis.CREATE_ACLS,
    apis.DELETE_ACLS,
    apis.ALTER_PARTITION_REASSIGNMENTS,
    apis.LIST_PARTITION_REASSIGNMENTS,
)
"""APIs whose requests are decided as a whole, like the requests that brokers forward to the active
controller."""

SERVED = frozenset(
    (
        *FORWARDED,
        apis.API_VERSIONS,
        apis.SASL_HANDSHAKE,
        apis.SASL_AUTHENTICATE,
        apis.DESCRIBE_CLUSTER,
        apis.DESCRIBE_CONFIGS,
        apis.INCREMENTAL_ALTER_CONFIGS,
        apis.DESCRIBE_ACLS,
    )
)
"""APIs of Kafka's protocol that a controller serves."""


class KafkaService:
    """The dispatcher of client requests on a controller, with its copy of the metadata and its
    waiting requests."""

    def __init__(
        self,
        config: ControllerConfig,
        *,
        cluster_id: str,
        clock: Clock,
        rng: Rng,
        errors: UnexpectedErrors,
        forwarding: ForwardingPort,
        authorizer: StandardAuthorizer | None,
        known_controllers: Callable[[], KnownControllers],
    ) -> None:
        self.dispatcher = Dispatcher(errors=errors)
        self.quotas = RequestQuotas(
            config.quota_windows, clock, self.dispatcher.clock, _custom_limits(config, errors)
        )
        """Request quotas of clients. A publisher of the caller updates them with each metadata
        image."""
        self.dispatcher.quotas = self.quotas
        self.authenticators = Authenticators(config, rng, clock)
        """Authenticators of clients, on listeners with SASL. They use the credentials of the
        metadata once `follow` is called."""
        self.dispatcher.guards = self.authenticators.guards
        self.dispatcher.on_closed.append(self.authenticators.sessions.forget)
        self.purgatory = Purgatory(errors)
        self._metadata = MetadataCache()
        self._authorization = Authorization(
            self._topic_name, self.dispatcher.times.note_refusal, authorizer
        )
        self.dispatcher.gates = self._authorization
        self._register(config, cluster_id, forwarding, known_controllers, clock)

    @property
    def publishers(self) -> tuple[Publisher, ...]:
        """Metadata publishers that receive every new metadata image, in the order in which they are
        called."""
        return self._authorization, self._metadata, ImageWatch(self.purgatory, self._metadata)

    def _image(self) -> MetadataImage:
        return self._metadata.image

    def _topic_name(self, topic_id: UUID) -> str | None:
        topic = self._metadata.image.topics.get(topic_id)
        return None if topic is None else topic.name

    def _register(
        self,
        config: ControllerConfig,
        cluster_id: str,
        forwarding: ForwardingPort,
        known_controllers: Callable[[], KnownControllers],
        clock: Clock,
    ) -> None:
        dispatcher, metadata = self.dispatcher, self._metadata
        register_sasl_apis(dispatcher)
        versions = ApiVersionsApi(
            metadata=metadata,
            served=lambda: SERVED,
            cluster_id=cluster_id,
            node_id=config.node_id,
            offers_telemetry=lambda: False,
        )
        dispatcher.register(apis.API_VERSIONS, versions.handle)
        dispatcher.on_unsupported_api_versions = versions.handle_unsupported
        admin = AdminApi(
            timeout_ms=DECIDED_MS_MAX,
            controller=forwarding,
            metadata=metadata,
            purgatory=self.purgatory,
            now_ms=clock.monotonic_ms,
        )
        for api_key in FORWARDED:
            dispatcher.register(api_key, admin.handle, large_handler=admin.handle_large)
        loggers = LogLevels()
        alter = AlterLoggersApi(
            config.node_id,
            loggers,
            admin.handle,
            admin.handle_large,
            obstacle_of=partial(obstacle_of, config.node_id, self._image),
            on_levels=dispatcher.decide_again,
        )
        dispatcher.register(apis.INCREMENTAL_ALTER_CONFIGS, alter.handle)
        settings = ControllerSettings(config, loggers, self._image)
        dispatcher.register(apis.DESCRIBE_CONFIGS, DescribeConfigsApi(settings.configs_of).handle)
        acls = DescribeAclsApi(metadata, is_on=config.authorizer.is_on)
        dispatcher.register(apis.DESCRIBE_ACLS, acls.handle)
        controllers = DescribeControllersApi(cluster_id, known_controllers)
        dispatcher.register(apis.DESCRIBE_CLUSTER, controllers.handle)


def _custom_limits(
    config: ControllerConfig, errors: UnexpectedErrors
) -> Callable[[str], CustomLimits] | None:
    """Return a function from the key of a quota to the limits that the class in
    `client.quota.callback.class` computes. Returns None if no class is set."""
    name = config.mutation_quotas.callback_class
    if name is None:
        return None
    callback = load_callback(name, config.texts)
    return lambda kind: CustomLimits(kind, callback, errors)
