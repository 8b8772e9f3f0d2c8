"""Long searches with the tests of programs, in several processes.

program_soak.py  deals batches to processes, and keeps failures
soak_worker.py   runs one batch with pytest
"""
