"""The committed message classes are those that the schemas say."""

from pathlib import Path

import ottla.wire.messages
from ottla.wire import generator
from ottla.wire.schema import module_name

FOLDER = Path(ottla.wire.messages.__path__[0])


def test_the_committed_classes_are_current() -> None:
    committed = {path.stem: path.read_text() for path in FOLDER.glob("*.py")}
    del committed["__init__"]
    assert committed == generator.generate(), "run python -m ottla.wire.generator"


def test_a_module_is_named_after_its_message() -> None:
    assert module_name("ProduceRequest") == "produce_request"
    assert module_name("KRaftVersionRecord") == "kraft_version_record"
    assert module_name("OffsetForLeaderEpochResponse") == "offset_for_leader_epoch_response"
