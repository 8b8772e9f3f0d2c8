"""A deterministic simulated cluster for property tests of programs that use Kafka.

checkers.py  checks of inputs, outputs and lag, with messages that show the events around an error
timeline.py  events of a run, as text
records.py   records that a scenario writes and reads
life.py      the life of an instance: its steps and its end
"""
