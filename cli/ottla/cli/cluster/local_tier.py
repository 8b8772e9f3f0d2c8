"""Configures the tiered storage of a local cluster: `ottla up --tier URI`."""

from pathlib import Path

from ottla.cli.cluster.cluster_file import ClusterPlan
from ottla.model.errors import ConfigError
from ottla.model.install_hint import install_hint
from ottla.storage.tier.store_settings import StoreScheme, parse_store_uri


def use_tier(plan: ClusterPlan, uri: str) -> None:
    """Configure the brokers of a local cluster to copy segments of tiered topics to the object
    store with this URI. The directory of a `file:` URI is created.

    Raises ConfigError if the URI is invalid, if the cluster has another store, or if the library
    for object stores is not installed.
    """
    try:
        location = parse_store_uri(uri)
        import obstore  # noqa: F401 - its absence is reported here, and not by each broker
    except ConfigError as error:
        raise ConfigError("--tier", error.problem) from None
    except ImportError:
        raise ConfigError(
            "--tier", f"needs a package that is not installed: {install_hint('tiered')}"
        ) from None
    if location.scheme is StoreScheme.MEMORY:
        raise ConfigError("--tier", "memory: is for tests: each broker would have its own")
    if plan.tier_uri and plan.tier_uri != uri:
        raise ConfigError(
            "--tier",
            f"is {uri}, but the cluster of {plan.directory} has its segments in {plan.tier_uri}; "
            "leave it out",
        )
    if location.scheme is StoreScheme.FILE:
        Path(location.prefix).mkdir(parents=True, exist_ok=True)
    plan.tier_uri = uri
