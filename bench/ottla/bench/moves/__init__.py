"""Benchmarks of a producer's latency while partitions move.

broker_moves.py   moves to other brokers, by a reassignment and by the removal of a broker
log_moves.py      a move to another log directory of the same broker
"""
