"""`ottla cluster`: declares the verbs that change or upgrade the cluster as a whole."""

from ottla.cli.cluster.balance.balance import BALANCE
from ottla.cli.cluster.upgrades.features import FEATURES
from ottla.cli.cluster.upgrades.upgrade import UPGRADE

VERBS = (BALANCE, FEATURES, UPGRADE)
