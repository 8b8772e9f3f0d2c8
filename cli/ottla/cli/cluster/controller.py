"""`ottla controller CONFIG`: run one controller in the foreground."""

import argparse

from ottla.cli.cluster.node_process import config_of, configure_node, run_node
from ottla.cli.imports import importing_for_good
from ottla.model.settings.controller import load_controller_config


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of 'ottla controller'."""
    configure_node(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the controller until SIGTERM or SIGINT."""
    config = config_of(arguments, "controller", load_controller_config)
    with importing_for_good():
        from ottla.controller.main_driver import run_controller

    return run_node(run_controller, config, role="controller")
