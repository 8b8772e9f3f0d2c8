"""Cluster-wide settings of a balance in progress. Pure.

`ottla cluster balance` sets them, and the active controller performs the moves in the plan. Setting
a plan starts the balance. Removing the plan cancels the moves in progress.
"""

from collections.abc import Iterable

from ottla.model.balance.plan_text import parse_moves
from ottla.model.errors import ConfigError
from ottla.model.limits import INT64_MAX
from ottla.model.settings.declare import SettingKind, setting
from ottla.model.values import frozen

BALANCE_PREFIX = "ottla.balance."
BALANCE_PLAN = "ottla.balance.plan"
BALANCE_RATE_MAX = "ottla.balance.rate.max"
BALANCE_RATE_MIN = "ottla.balance.rate.min"
BALANCE_KEYS = (BALANCE_PLAN, BALANCE_RATE_MAX, BALANCE_RATE_MIN)
DEFAULT_RATE_MAX = 20_000_000
DEFAULT_RATE_MIN = 1_000_000


def parse_plan(text: str) -> str:
    """moves such as orders:0:1,2>1,3, separated by semicolons, each partition once, at most 1,000.

    Checks the plan of a balance and returns its text unchanged. Raises ValueError if the text is
    malformed. Error messages quote the first line as the description of valid texts.
    """
    parse_moves(text)
    return text


def check_not_in_file(keys: Iterable[str]) -> None:
    """Raise ConfigError if a settings file contains a setting of a balance. These settings may be
    set only in the cluster."""
    for key in keys:
        if key.startswith(BALANCE_PREFIX):
            raise ConfigError(key, "belongs in no file; 'ottla cluster balance' sets it")


@frozen(kw_only=True)
class BalanceSettings:
    """Settings of a balance in progress: its plan and its throttle."""

    plan: str = setting(
        "",
        key=BALANCE_PLAN,
        parse=parse_plan,
        is_dynamic=True,
        doc="Ottla's own: the moves of a balance that are not complete. Setting it starts them, "
        "removing it cancels them; see `ottla cluster balance`. Cluster-wide only.",
    )
    rate_max: int = setting(
        DEFAULT_RATE_MAX,
        key=BALANCE_RATE_MAX,
        kind=SettingKind.LONG,
        at_least=1,
        at_most=INT64_MAX,
        is_dynamic=True,
        doc="Ottla's own: highest throttle of the moves of a balance, in bytes per second to and "
        "from each broker. Cluster-wide only.",
    )
    rate_min: int = setting(
        DEFAULT_RATE_MIN,
        key=BALANCE_RATE_MIN,
        kind=SettingKind.LONG,
        at_least=1,
        at_most=INT64_MAX,
        is_dynamic=True,
        doc="Ottla's own: lowest throttle of the moves of a balance, in bytes per second, to which "
        "it falls while the moves slow down producers. It must be above what is produced to the "
        "partitions that move at a time. Cluster-wide only.",
    )
