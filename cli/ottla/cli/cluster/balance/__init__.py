"""`ottla cluster balance`: moves that even out the bytes, replicas and leaders of brokers.

balance.py         the command: start here
plan_progress.py   progress of the balance plan that the cluster carries out
plan_tables.py     plans and progress as tables and JSON
"""
