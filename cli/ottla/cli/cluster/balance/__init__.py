"""`ottla cluster balance`: even bytes, replicas and leaders.

balance.py         the command: start here
cluster_loads.py   collects the planner's input from brokers
plan_tables.py     a plan as tables and JSON
"""
