"""Histories to try checkers and reports on: valid ones, and ones with exactly one anomaly.

script.py           a history told step by step
queue_histories.py  clients of logs that keep every promise, in bad weather
object_histories.py  clients of any one object that keeps every promise
queue_plants.py     one anomaly each, planted into such a history
"""
