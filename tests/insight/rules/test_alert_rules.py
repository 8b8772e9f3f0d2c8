"""The table of alert rules agrees with the file for Prometheus, and its commands exist."""

from importlib import import_module
from pathlib import Path

import pytest
import yaml

from ottla.cli.main import COMMANDS
from ottla.cli.parser import Parser
from ottla.cli.verbs import declare
from ottla.insight.rules.alert_rules import ALERT_RULES, AlertRule

ROOT = Path(__file__).parents[3]


def test_the_rules_are_those_of_the_file_for_prometheus() -> None:
    text = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    (group,) = yaml.safe_load(text)["groups"]
    assert [
        (one["alert"], one["expr"], one.get("for", ""), one["labels"]["severity"] == "page")
        for one in group["rules"]
    ] == [(one.name, one.expression, one.wait, one.is_urgent) for one in ALERT_RULES]


@pytest.mark.parametrize("rule", ALERT_RULES, ids=lambda rule: rule.name)
def test_the_command_of_a_rule_parses(rule: AlertRule) -> None:
    program, *words = rule.command.replace("ID", "1").split()
    if program == "systemctl":
        return
    assert program == "ottla"
    parser = Parser(prog=f"ottla {words[0]}")
    command = COMMANDS[words[0]]
    is_verb = words[1:2] != [] and words[1] in command.verbs
    declare(parser, import_module(command.verbs_module if is_verb else command.module))
    parser.parse_args(words[1:])
