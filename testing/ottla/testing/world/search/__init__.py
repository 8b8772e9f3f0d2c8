"""Search for failing runs with Hypothesis.

strategies.py      strategies for clusters and fault schedules
"""
