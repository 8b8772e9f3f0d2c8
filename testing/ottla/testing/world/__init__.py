"""A deterministic simulated cluster for property tests of programs that use Kafka.

checkers.py        checks of inputs, outputs and lag
timeline.py        events of a run, as text
timeline_page.py   events of a run, as a page
timeline_event.py  one event
records.py         records that a scenario writes and reads
life.py            the life of an instance: its steps and its end
store.py           a transactional store that instances share
sqlite.py          SQLite databases in the folders of instances
"""
