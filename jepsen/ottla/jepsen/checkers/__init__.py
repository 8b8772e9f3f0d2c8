"""Judges of histories: pure functions from a history and the facts of its run to a verdict.

table.py        every checker by its name
verdict.py      Finding, Verdict, Facts: what a checker is told and what it says
log.py          queues as logs: Jepsen's rules for Kafka, and the house's own
log_reading.py  what a queue history says of each log
log_values.py   which records there are
log_order.py    in which order they are sent and seen
log_figures.py  how far consumers were behind, told beside the verdict
compacted.py    what readers and replicas of a compacted log must agree in
cycles.py       what nobody may have seen before it was done: G0 and G1c
transactions.py nothing of a transaction too early, in part, or after its producer was replaced
graph.py        what goes round in a graph of many nodes
wgl.py          one order of concurrent calls that a sequential object allows
picture.py      what a picture of such a search shows
registers.py    committed offsets as registers
offsets.py      registers that nobody in particular writes
groups.py       who owns which key of a group, and what is committed for it
metadata.py     topics that come, change and go, as every broker shows them
producer_ids.py what a producer was given nobody else ever is
list_offsets.py a log's end lies behind all that was acknowledged
availability.py whether the cluster served, and how soon after faults
servers.py      what the harness found in the servers' logs and directories
testing/        histories to try them on: valid ones, and ones with one planted anomaly
"""
