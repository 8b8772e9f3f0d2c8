"""Availability of client telemetry, for every setting."""

import pytest

from ottla.telemetry.clients.offering import OfferSetting, telemetry_is_offered


@pytest.mark.parametrize("has_subscription", [False, True])
@pytest.mark.parametrize("has_exporter", [False, True])
@pytest.mark.parametrize("setting", ["auto", "on", "off"])
def test_auto_offers_telemetry_where_it_is_wanted_and_on_and_off_hold(
    setting: OfferSetting, has_subscription: bool, has_exporter: bool
) -> None:
    wanted = {"on": True, "off": False, "auto": has_subscription or has_exporter}[setting]
    assert (
        telemetry_is_offered(setting, has_subscription=has_subscription, has_exporter=has_exporter)
        is wanted
    )
