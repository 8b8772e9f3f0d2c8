"""Databases for programs in simulated worlds.

store.py   a transactional store that instances share
sqlite.py  SQLite databases in the folders of instances
"""
