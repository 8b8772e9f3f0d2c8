"""Search for failing runs with Hypothesis.

strategies.py      strategies for clusters and fault schedules
state_machine.py   state machines whose rules act on a world
"""
