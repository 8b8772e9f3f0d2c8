"""Live traffic of a cluster.

top.py  `ottla top`
"""
