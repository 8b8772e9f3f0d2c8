"""Benchmarks whose load is a program of another maker, with its default settings.

program_runs.py   runs a program until its end
java_tools.py     Kafka's performance tools
franz_client.py   builds and runs a program with the Go client franz-go
franz.go          the program
program_rows.py   the benchmarks of docs/performance.md
"""
