"""Backups of topics and groups that are taken while the cluster serves.

backup.py          `ottla backup create|verify|restore`
backup_files.py    the files of a backup, and checks of them
backup_reader.py   reads a moment of the cluster: offsets of groups first, then records
backup_restore.py  writes a backup into a cluster, and translates offsets of groups
"""
