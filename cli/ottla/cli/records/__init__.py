"""Commands that write and print records.

produce.py         `ottla produce`: records from standard input
consume.py         `ottla consume`: prints records
consume_group.py   `ottla consume` as a member of a group
consume_share.py   `ottla consume` as a member of a share group
wanted_topics.py   the topics that a command names or matches
record_printer.py  output formats of a record
"""
