"""Whole conversations as text: commands, and all their effects.

Each file of `transcripts/` is a story. A line that begins with `>` is a command; the lines below it
are its effects. `pytest tests/raft --rewrite-transcripts` writes them again: review the diff.
"""

from pathlib import Path

import pytest

from ottla.jepsen.quorum.world import FaultRates, World
from ottla.jepsen.world.rng import SeededRng
from ottla.model.ids import NodeId, Offset
from ottla.model.settings.quorum import QuorumConfig
from ottla.raft.events import ShutdownRequested

TRANSCRIPTS = Path(__file__).parent / "transcripts"


class Stage:
    """Runs the commands of one story and writes down their effects."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._world: World | None = None

    @property
    def world(self) -> World:
        assert self._world is not None, "a story begins with `quorum`"
        return self._world

    def perform(self, command: str) -> None:
        word, *rest = command.split()
        numbers = tuple(int(each) for each in rest if each.isdigit())
        match word:
            case "quorum":
                self._set_up(rest)
            case "start":
                self.world.start(*numbers)
            case "run":
                self.world.run_until(self.world.now_ms + numbers[0])
            case "propose":
                assert self.world.propose(rest[0], at=numbers[0] if numbers else None)
            case "crash":
                self.world.crash(numbers[0])
            case "shutdown":
                self.world.step(NodeId(numbers[0]), ShutdownRequested())
            case "part":
                sides = " ".join(rest).split("|")
                self.world.part(*(tuple(map(int, side.split())) for side in sides))
            case "heal":
                self.world.heal()
            case "snapshot":
                log = self.world.members[NodeId(numbers[0])].log
                log.snapshot_at(Offset(numbers[1]), keeps_log=False)
            case "show":
                self._show()
            case _:
                raise AssertionError(f"no such command: {command}")

    def _set_up(self, words: list[str]) -> None:
        """`quorum 1 2 3 observers 9`: ids of voters, then of observers."""
        at = words.index("observers") if "observers" in words else len(words)
        self._world = World(
            SeededRng(3),
            voter_ids=tuple(map(int, words[:at])),
            observer_ids=tuple(map(int, words[at + 1 :])),
            config=QuorumConfig(),
            fault_rates=FaultRates(latency_ms_max=1),
        )
        self._world.narrate = self._hear

    def _hear(self, line: str) -> None:
        self.lines.append(f"{self.world.now_ms:>6}  {line}")

    def _show(self) -> None:
        for node_id, member in self.world.members.items():
            if member.core is None:
                self.lines.append(f"        {node_id} is down")
                continue
            core, log = member.core, member.log
            self.lines.append(
                f"        {node_id} {core.role.value} in epoch {core.epoch}, "
                f"log [{log.start_offset}, {log.end_offset}), committed {core.high_watermark}"
            )


def perform(script: str) -> str:
    """Return a story with the present effects below each of its commands."""
    stage = Stage()
    for line in script.splitlines():
        if line.startswith(("#", ">")) or not line:
            stage.lines.append(line)
        if line.startswith(">"):
            stage.perform(line[1:].strip())
    return "\n".join(stage.lines) + "\n"


@pytest.mark.parametrize("path", sorted(TRANSCRIPTS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_story_goes_as_it_was_written_down(path: Path, request: pytest.FixtureRequest) -> None:
    written = path.read_text()

    happened = perform(written)

    if request.config.getoption("--rewrite-transcripts", default=False):
        path.write_text(happened)
    else:
        assert happened == written


def test_there_are_stories() -> None:
    assert len(list(TRANSCRIPTS.glob("*.txt"))) >= 6
