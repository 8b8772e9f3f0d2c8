"""`ottla cluster`: changes of the cluster as a whole."""

from ottla.cli.cluster.balance.balance import BALANCE

VERBS = (BALANCE,)
