"""Search for failing runs with Hypothesis.

strategies.py      strategies for clusters and fault schedules
shrinking.py       limit for the time of shrinking
state_machine.py   state machines whose rules act on a world
"""
