"""The floor of a broker: its system calls on the same bytes, made by the smallest program.

floor.py          measures broker and program in turns, and makes the table: start here
floor_program.py  builds and runs the program
floor.c           the program
"""
