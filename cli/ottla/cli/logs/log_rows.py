"""Reads the contents of a file in a log directory as rows. As in Kafka, the name of the file
identifies its format."""

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import UUID

from ottla.cli.logs.read_only import open_read_only
from ottla.model.errors import ConfigError, CorruptDataError
from ottla.model.ids import Offset, TopicPartition
from ottla.storage.directories.checkpoint_topics import CHECKPOINT_TOPICS_FILE, parse_topic_ids
from ottla.storage.directories.clean_shutdown import CLEAN_SHUTDOWN_FILE, parse_clean_shutdown
from ottla.storage.directories.meta_properties import (
    META_PROPERTIES_FILE,
    parse_meta_properties,
    uuid_to_text,
)
from ottla.storage.inspection.batch_walk import Problem, walk
from ottla.storage.inspection.dump import (
    Entry,
    FieldRow,
    Row,
    dump_batches,
    dump_checkpoint,
    dump_checkpoint_topics,
    dump_epochs,
    dump_offset_index,
    dump_partition_metadata,
    dump_producer_batches,
    dump_producer_snapshot,
    dump_time_index,
    dump_transaction_index,
    rows_or_problem,
)
from ottla.storage.inspection.index_checks import check_of
from ottla.storage.inspection.readable import Readable, whole_file
from ottla.storage.segments.files import LOG, OFFSET_DIGITS, PRODUCER_BATCHES

QUORUM_STATE_FILE = "quorum-state"
OFFSET_CHECKPOINT_SUFFIX = "-offset-checkpoint"
PASSING_SUFFIXES = (".deleted", ".cleaned", ".swap")
"""Suffixes in the names of segment files that a broker is creating or deleting."""

BATCH_KINDS = ("log", "checkpoint")
INDEX_KINDS = ("index", "timeindex", "txnindex")
SNAPSHOT_KINDS = ("snapshot", PRODUCER_BATCHES)
CHECKPOINT_KINDS = (
    "offset-checkpoint",
    "leader-epoch-checkpoint",
    "partition.metadata",
    CHECKPOINT_TOPICS_FILE,
    META_PROPERTIES_FILE,
    CLEAN_SHUTDOWN_FILE,
    QUORUM_STATE_FILE,
)
KINDS = (*BATCH_KINDS, *INDEX_KINDS, *SNAPSHOT_KINDS, *CHECKPOINT_KINDS)


def kind_of(name: str) -> str:
    """Return the suffix or the name that identifies the format of a file in a log directory, or ""
    if it is unknown."""
    for suffix in PASSING_SUFFIXES:
        name = name.removesuffix(suffix)
    stem, dot, suffix = name.rpartition(".")
    digits = stem.partition("-")[0]
    if dot and len(digits) == OFFSET_DIGITS and digits.isascii() and digits.isdigit():
        if suffix in (*BATCH_KINDS, *INDEX_KINDS, "snapshot"):
            return suffix
    elif name.endswith(OFFSET_CHECKPOINT_SUFFIX):
        return "offset-checkpoint"
    elif name in KINDS:
        return name
    return ""


def files_of(names: list[str], kinds: tuple[str, ...], verb: str) -> Iterator[Path]:
    """Yield the paths of files that the command line names. If a directory is named, yield its
    files whose kind is in `kinds`.

    Raises ConfigError if a name does not exist, or is a file of another kind.
    """
    for name in names:
        path = Path(name)
        if path.is_dir():
            yield from (file for file in sorted(path.iterdir()) if kind_of(file.name) in kinds)
        elif not path.exists():
            raise ConfigError(name, "is not there")
        elif kind_of(path.name) == "":
            raise ConfigError(name, "is no file of a log; its name says what it holds")
        elif kind_of(path.name) not in kinds:
            raise ConfigError(name, f"is not for 'log {verb}'; 'log dump' shows it")
        else:
            yield path


def rows_of(path: Path, file: Readable, *, is_with_records: bool = False) -> Iterator[Row]:
    """Yield the rows (batches, records or entries) of one file in a log directory."""
    kind = kind_of(path.name)
    if kind in BATCH_KINDS:
        return dump_batches(file, is_with_records=is_with_records)
    if kind == "txnindex":
        return dump_transaction_index(file)
    if kind in ("index", "timeindex", "snapshot"):
        offset = Offset(int(path.name[:OFFSET_DIGITS]))
        if kind == "index":
            return dump_offset_index(file, offset)
        if kind == "timeindex":
            return dump_time_index(file, offset)
        return rows_or_problem(lambda: dump_producer_snapshot(whole_file(file), offset))
    if kind == "offset-checkpoint":
        return rows_or_problem(lambda: _checkpoint_rows(path, file))
    dumps: dict[str, Callable[[bytes], Iterator[Row]]] = {
        "leader-epoch-checkpoint": dump_epochs,
        "partition.metadata": dump_partition_metadata,
        CHECKPOINT_TOPICS_FILE: dump_checkpoint_topics,
        PRODUCER_BATCHES: dump_producer_batches,
        META_PROPERTIES_FILE: _dump_meta_properties,
        CLEAN_SHUTDOWN_FILE: _dump_clean_shutdown,
        QUORUM_STATE_FILE: _dump_quorum_state,
    }
    return rows_or_problem(lambda: dumps[kind](whole_file(file)))


def checked_entries(path: Path, file: Readable) -> Iterator[Entry | Problem]:
    """Yield the entries of an index file of a log segment. An entry that does not match the log is
    followed by its problem."""
    name = path.name
    for passing in PASSING_SUFFIXES:
        name = name.removesuffix(passing)
    base_offset = int(name[:OFFSET_DIGITS])
    check = check_of(f".{kind_of(path.name)}", file, base_offset)
    log_path = path.with_name(name[:OFFSET_DIGITS] + LOG + path.name[len(name) :])
    if not log_path.is_file():
        yield Problem(0, f"{log_path.name} is not beside it")
        yield from check.finish("a log that is not there")
        return
    with open_read_only(log_path) as log:
        for row in walk(log):
            if isinstance(row, Problem):
                if row.is_damage:
                    yield Problem(0, f"{log_path.name} at {row.position}: {row.problem}")
                break
            yield from check.on_batch(row)
        yield from check.finish(f"the end of {log_path.name}")


def topic_ids_beside(path: Path) -> dict[TopicPartition, UUID] | None:
    """Return the topic ids of the partitions in a checkpoint file, or None if its directory
    contains no file of topic ids.

    Raises CorruptDataError if the file of topic ids is damaged.
    """
    side_file = path.with_name(CHECKPOINT_TOPICS_FILE)
    if not side_file.is_file():
        return None
    with open_read_only(side_file) as file:
        return parse_topic_ids(whole_file(file))


def _checkpoint_rows(path: Path, file: Readable) -> Iterator[Row]:
    topic_ids: dict[TopicPartition, UUID] = {}
    problem: Problem | None = None
    try:
        topic_ids = topic_ids_beside(path) or {}
    except CorruptDataError as error:
        problem = Problem(0, f"{CHECKPOINT_TOPICS_FILE} beside it: {error.where}")
    for row in dump_checkpoint(whole_file(file)):
        topic_id = topic_ids.get(TopicPartition(row.topic, row.partition))
        yield row if topic_id is None else row._replace(topic_id=uuid_to_text(topic_id))
    if problem is not None:
        yield problem


def _dump_meta_properties(data: bytes) -> Iterator[FieldRow]:
    properties = parse_meta_properties(data)
    directory_id = properties.directory_id
    yield FieldRow("cluster.id", properties.cluster_id)
    yield FieldRow("node.id", properties.node_id)
    yield FieldRow("directory.id", None if directory_id is None else uuid_to_text(directory_id))


def _dump_clean_shutdown(data: bytes) -> Iterator[FieldRow]:
    yield FieldRow("brokerEpoch", parse_clean_shutdown(data))


def _dump_quorum_state(data: bytes) -> Iterator[FieldRow]:
    from ottla.raft.election_state import decode

    state = decode(data)
    yield FieldRow("leader_epoch", state.epoch)
    yield FieldRow("leader_id", state.leader_id)
    yield FieldRow("voted_id", None if state.voted is None else state.voted.id)
    yield FieldRow(
        "voted_directory_id",
        None if state.voted is None else uuid_to_text(state.voted.directory_id),
    )
