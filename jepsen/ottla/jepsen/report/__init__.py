"""Reports of runs for people: pages and pictures, each one file that is complete offline.

write.py      writes a run's pages and pictures, and a store's matrix: the only one with files
run_page.py   a run's index.html: verdict, findings, pictures, checkers, faults, errors, files
timeline.py   timeline.html: operations and faults by their starts, of a long run a part
orders.py     the log of a bad key around the offsets of findings
linear.py     the longest order of a register's calls, and where it ends
matrix.py     a store's index.html: nemesis × workload
figures.py    pictures over time as SVG, drawn by matplotlib where it is installed
measures.py   numbers of a history: latencies and rates by window
faults.py     the spans of time in which a fault was active
run_files.py  the contents of test.json and results.json
words.py      numbers, durations and operations in words
page.py       the shell of every page, its colours and tables
markup.py     elements that their contents cannot break
"""
