"""Commands on records.

produce.py       `ottla produce`: records from standard input
consume.py       `ottla consume`: records printed
log_commands.py  `ottla log`: records and indexes of log files
"""
