"""The floor of a broker: its system calls on the same bytes, made by the smallest program.

floor.py          rows, rounds in turns with a broker, and the table: start here
floor_program.py  builds and runs the program
floor.c           the program
"""
