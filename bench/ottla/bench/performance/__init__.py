"""The rows of docs/performance.md: measured, stored as JSON, and rendered as a page.

performance.py        measures groups of rows and stores their values: start here
performance_rows.py   the rows and their goals
queue_rows.py         the rows about share groups
work_rows.py          steady rates, many partitions and many clients, as in everyday work
long_polls.py         many consumers that wait in long polls
conditions.py         quotas and log sizes that some rows require
performance_page.py   generates the tables of the page
performance_plots.py  draws the plots of the page
metadata_scale.py     metadata of very many partitions
heartbeat_scale.py    heartbeats of very many brokers
"""
