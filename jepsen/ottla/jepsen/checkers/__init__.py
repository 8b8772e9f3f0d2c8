"""Judges of histories: pure functions from a history and the facts of its run to a verdict.

verdict.py  Finding, Verdict, Facts: what a checker is told and what it says
"""
