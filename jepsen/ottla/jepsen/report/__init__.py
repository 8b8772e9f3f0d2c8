"""Reports of runs for people: pages and plots. Each is one file that needs no network.

write.py      writes a run's pages and plots, and the matrix of a store; accesses all files
run_page.py   a run's index.html: verdict, anomalies, plots, checkers, faults, errors, files
timeline.py   timeline.html: operations and faults by start time, only some if the run is long
orders.py     table of a partition log around the offsets of anomalies
linear.py     table of the longest order of a register's calls, and of the calls at its end
matrix.py     a store's index.html: nemesis × workload
figures.py    plots over time as SVG, drawn by matplotlib if it is installed
measures.py   statistics computed from a history: latencies and rates by time window
faults.py     the time spans in which a fault was active
run_files.py  the contents of test.json and results.json
words.py      numbers, durations and operations in words
page.py       the frame of every page, its colours and tables
markup.py     HTML elements with escaped contents
"""
