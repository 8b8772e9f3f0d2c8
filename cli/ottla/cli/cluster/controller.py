"""`ottla controller CONFIG`: run one controller in the foreground."""

import argparse

from ottla.cli.cluster.node_process import NODE_OPTIONS, config_of, run_node
from ottla.cli.imports import importing_for_good
from ottla.model.settings.controller import load_controller_config

OPTIONS = NODE_OPTIONS


def run(arguments: argparse.Namespace) -> int:
    """`ottla controller FILE`: run the controller until SIGTERM or SIGINT. Returns the exit
    code."""
    config = config_of(arguments, "controller", load_controller_config)
    with importing_for_good():
        from ottla.controller.main_driver import run_controller

    return run_node(run_controller, config, role="controller")
