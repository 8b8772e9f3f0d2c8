"""Commands on records.

produce.py  `ottla produce`: records from standard input
consume.py  `ottla consume`: records printed
consume_group.py   the same as a member of a group
wanted_topics.py   the topics that are named or match
record_printer.py  formats of a record
"""
