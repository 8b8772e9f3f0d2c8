"""One partition's log.

log.py                   the log for its callers, composed of the components below: start here
log_state.py             segments, watermarks, epochs and producers, shared by all components
log_health.py            state of the log after an error of its files, and refusals
log_owner.py             notifications of the log's owner: the log manager, or a move
appender.py              appends, as leader and as follower
validate.py              the leader's checks of batches, and the header fields that it sets
log_reader.py            reads: slices, aborted transactions, look-ups by time
segment_files.py         files of segments: created, rolled, renamed to `.deleted`, removed
epoch_file.py            the `leader-epoch-checkpoint` file
flusher.py               flushes
truncator.py             truncation at the end
segment_remover.py       removal of the oldest segments, by retention or deletion
segment_replacer.py      replacement of segments by a cleaned one
local_segment_source.py  a closed segment, as its upload to an object store reads it
log_names.py             durability of the names in the log's directory
file_tasks.py            count of running tasks, for whose end a deletion waits
"""
