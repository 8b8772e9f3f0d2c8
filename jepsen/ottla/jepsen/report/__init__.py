"""What a person looks at after a run: pages and pictures, each one file that needs nothing else.

write.py       writes a run's pages and pictures, and a store's matrix: the only one with files
run_page.py    a run's index.html: the verdict, what supports it, what it rests on
run_tables.py  its tables: checkers, faults, facts, files
matrix.py      a store's index.html: workload × nemesis
timeline.py    who did what when: a column a thread, a row an event
shown.py       which operations a timeline shows when it cannot show all
latency.py     latency-raw and latency-quantiles
rates.py       rate
consumers.py   unseen and realtime-lag
clocks.py      clock
orders.py      the log of a bad key, offset by offset
linear.py      the longest order of a register's calls, and what stopped it
measures.py    what a history says in numbers
faults.py      the spans of time in which a fault was under way
told.py        what test.json and results.json say
frame.py       the frame of every picture: lanes of faults, panels, axes, legend
lines.py       lines over time, their labels and tooltips
scales.py      from what was measured to pixels, and ticks
words.py       numbers, durations and operations as a person says them
page.py        the shell of every page
theme.py       colours, light and dark
markup.py      elements that cannot be broken by what they show
"""
