"""Runs on real processes: nodes in their own networks, faults, load, verdicts.

run_plan.py        what a run is to do, and the command that does it again
run_driver.py      one run, phase by phase
run_track.py       one workload of it: threads, history, folder
run_load.py        the threads
cluster_security.py  certificates, users and entries of a secure cluster
run_faults.py      the nemesis: one fault after the other
run_nemeses.py     which faults there are, and which this machine can do
run_evidence.py    what the nodes left behind: errors, and data that must be sound
run_watch.py       anomalies that show while it runs
run_status.py      how far it is
run_verdict.py     whether it was a run at all
run_judge.py       the verdict of all checkers, from the folder alone
run_bugs.py        bugs that real processes show, and the runs that show them
store.py           the folders
node_main.py       a node with a planted bug
"""
