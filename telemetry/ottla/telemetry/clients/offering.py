"""Decision whether clients are offered the APIs with which they report metrics (KIP-714). Pure.

Clients send requests as soon as a broker lists the APIs, and librdkafka then prints a line on the
application's console. The APIs are therefore listed only if a setting or a subscription requires
reports.
"""

from typing import Literal, TypeAlias

OfferSetting: TypeAlias = Literal["auto", "on", "off"]
"""Values of the setting `client.telemetry`, which decides whether clients are offered the metrics
APIs."""


def telemetry_is_offered(
    setting: OfferSetting, *, has_subscription: bool, has_exporter: bool
) -> bool:
    """Return whether clients are offered the APIs with which they report metrics.

    The setting `auto` offers them if there is a subscription, or an exporter of client metrics.
    """
    if setting == "auto":
        return has_subscription or has_exporter
    return setting == "on"
