"""Selection of the per-record implementation of log compaction: numpy arrays if numpy is installed,
otherwise plain Python."""

from collections.abc import Callable
from importlib.util import find_spec

from ottla.storage.cleaner.cleaning_task import CleaningTask
from ottla.storage.cleaner.offset_map import SlotTable, keyed_digest
from ottla.storage.cleaner.record_work import PlainRecordWork, RecordWork

RecordForm = Callable[[CleaningTask], RecordWork]


def plain_record_work(task: CleaningTask) -> RecordWork:
    """Return the per-record implementation of log compaction in plain Python."""
    digest = keyed_digest(task.hash_seed)
    return PlainRecordWork(SlotTable(task.map_bytes, task.map_load_factor, digest))


def array_record_work(task: CleaningTask) -> RecordWork:
    """Return the per-record implementation of log compaction with numpy. Raises ImportError if
    numpy is not installed."""
    from ottla.storage.cleaner.array_offset_map import ArrayOffsetMap, KeyHasher
    from ottla.storage.cleaner.array_record_work import ArrayRecordWork

    hasher = KeyHasher(task.hash_seed)
    most = task.end_offset - task.first_dirty_offset
    offset_map = ArrayOffsetMap(task.map_bytes, task.map_load_factor, hasher, most)
    return ArrayRecordWork(offset_map, hasher)


def new_record_work(task: CleaningTask, form: RecordForm | None = None) -> RecordWork:
    """Return the per-record implementation of log compaction that `form` selects, or by default the
    fastest available one."""
    if form is None:
        form = plain_record_work if find_spec("numpy") is None else array_record_work
    return form(task)
