"""Benchmark of a broker against its floor: the smallest program that makes the same system calls.

floor.py          measures broker and program in turns, and makes the table: start here
floor_program.py  builds and runs the program
floor.c           the program
"""
