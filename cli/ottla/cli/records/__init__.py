"""Commands on records.

produce.py  `ottla produce`: records from standard input
consume.py  `ottla consume`: records printed
"""
