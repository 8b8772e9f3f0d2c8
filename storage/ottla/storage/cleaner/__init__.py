"""The passes of the log cleaner: what compaction reads, keeps and writes.

cleaning_task.py         one cleaning of one partition, its reports, and their lines for a pipe
"""
