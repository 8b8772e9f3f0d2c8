"""Whether clients are told that they may report their metrics (KIP-714).  Pure.

Clients ask as soon as a broker lists the APIs, and librdkafka prints a line about it on the
application's console.  So the APIs are listed only where somebody wants the reports.
"""

from typing import Literal, TypeAlias

OfferSetting: TypeAlias = Literal["auto", "on", "off"]
"""The values of `client.telemetry`."""


def telemetry_is_offered(
    setting: OfferSetting, *, has_subscription: bool, has_exporter: bool
) -> bool:
    """Return whether the two APIs are offered.

    `auto` offers them where a subscription exists, or an exporter that clients' reports leave by.
    """
    if setting == "auto":
        return has_subscription or has_exporter
    return setting == "on"
