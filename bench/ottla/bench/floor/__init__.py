"""The floor of a broker: the cost of its system calls, measured with the smallest program.

floor.py          measures broker and program in turns, and makes the table: start here
floor_program.py  builds and runs the program
floor.c           the program
"""
