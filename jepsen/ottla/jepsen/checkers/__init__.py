"""Judges of histories: pure functions from a history and the facts of its run to a verdict.

table.py        every checker by its name
verdict.py      Finding, Verdict, Facts: what a checker is told and what it says
log.py          queues as logs: Jepsen's rules for Kafka, and the house's own
log_reading.py  what a queue history says of each log
log_values.py   which records there are
log_order.py    in which order they are sent and seen
log_figures.py  how far consumers were behind, told beside the verdict
testing/        histories to try them on: valid ones, and ones with one planted anomaly
"""
