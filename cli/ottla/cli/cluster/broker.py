"""`ottla broker CONFIG`: run one broker in the foreground."""

import argparse

from ottla.cli.cluster.node_process import NODE_OPTIONS, config_of, run_node
from ottla.cli.imports import importing_for_good
from ottla.model.settings.broker import load_broker_config

OPTIONS = NODE_OPTIONS
EPILOG = (
    "Brokers that run already: 'ottla broker list', 'logdirs', 'describe ID', 'drain ID', "
    "'cordon ID', 'remove ID', 'unregister ID'."
)


def run(arguments: argparse.Namespace) -> int:
    """`ottla broker FILE`: run the broker until SIGTERM or SIGINT. Returns the exit code."""
    config = config_of(arguments, "broker", load_broker_config)
    with importing_for_good():
        from ottla.broker.opening_driver import run_broker

    return run_node(run_broker, config, role="broker")
