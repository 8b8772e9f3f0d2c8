"""Moves of replicas between brokers and between log directories.

reassign.py               `ottla topic reassign`: start here
reassign_arguments.py     options of `ottla topic reassign`, without its implementation
reassignment_plan.py      plans the brokers of each replica (pure)
reassignment_requests.py  requests that start, cancel and measure reassignments
directory_moves.py        `ottla topic reassign --log-dir`: moves between log directories
throttles.py              throttles of reassignments, and unneeded throttles (pure)
throttle_requests.py      sets and removes throttles
throttled_moves.py        moves with a throttle that is removed when they end
adapted_moves.py          moves that the controllers carry out, with an adaptive throttle
plan_watch.py             progress of moves that the controllers carry out
move_bars.py              progress bars of moves
"""
