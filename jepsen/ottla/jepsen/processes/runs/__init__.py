"""One run on real processes: its plan, load, faults, evidence and verdict.

run_plan.py      parameters of a run, and the command that repeats it: start here
run_driver.py    one run, phase by phase
run_track.py     one workload of a run: threads, history, folder
run_load.py      the threads of one workload
run_faults.py    injection of one fault after the other
run_nemeses.py   the nemeses by name, and the reasons why this machine forbids some
run_evidence.py  errors and data that the nodes left behind
run_watch.py     anomalies visible during the run
run_status.py    progress of a run
run_verdict.py   checks that the run had enough load and faults to be meaningful
run_judge.py     the verdict of all checkers, computed from the run's folder alone
run_bugs.py      deliberate bugs that runs on real processes must reveal
"""
