"""Explanations: their verdict, their JSON form, and commands with hostile names."""

import json
import shlex

from ottla.insight.explanation import Cause, Conclusion, Evidence, command, concluded


def test_missing_facts_without_a_cause_make_the_verdict_unknown() -> None:
    cause = Cause(kind="k", summary="it is so")
    assert concluded("lag", "group g", []).verdict is Conclusion.CLEAR
    assert concluded("lag", "group g", [], unknown=["x"]).verdict is Conclusion.UNKNOWN
    assert concluded("lag", "group g", [cause], unknown=["x"]).verdict is Conclusion.CAUSED


def test_the_json_form_has_evidence_by_label_and_no_empty_command() -> None:
    cause = Cause(kind="k", summary="it is so", evidence=(Evidence("lag in records", 7),))
    found = json.loads(json.dumps(concluded("lag", "group g", [cause]).as_json))
    assert found["verdict"] == "caused"
    (shown,) = found["causes"]
    assert shown["evidence"] == {"lag in records": 7}
    assert shown["fix"] is None


def test_a_hostile_name_stays_one_word_of_a_command() -> None:
    name = "orders; rm -rf / 'x' $(y)"
    assert shlex.split(command("topic", "describe", name)) == ["ottla", "topic", "describe", name]
