"""The form of the work per record: arrays where numpy is installed, otherwise plain."""

from collections.abc import Callable

from ottla.storage.cleaner.cleaning_task import CleaningTask
from ottla.storage.cleaner.offset_map import SlotTable, keyed_digest
from ottla.storage.cleaner.record_work import PlainRecordWork, RecordWork

RecordForm = Callable[[CleaningTask], RecordWork]


def plain_record_work(task: CleaningTask) -> RecordWork:
    """Return the work in plain Python."""
    digest = keyed_digest(task.hash_seed)
    return PlainRecordWork(SlotTable(task.map_bytes, task.map_load_factor, digest))


def new_record_work(task: CleaningTask, form: RecordForm | None = None) -> RecordWork:
    """Return the work in the form that is asked for, or the fastest there is."""
    return plain_record_work(task) if form is None else form(task)
