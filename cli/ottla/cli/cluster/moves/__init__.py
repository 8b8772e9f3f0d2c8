"""Moves of replicas between brokers and between log directories.

reassign.py               `ottla topic reassign`: start here
reassign_arguments.py     its options, without an import of its implementation
reassignment_plan.py      decides which broker gets which replica (pure)
reassignment_requests.py  the requests to brokers
directory_moves.py        `ottla topic reassign --log-dir`: between directories of a broker
throttles.py              replicas that a throttled move names, and throttles left over (pure)
throttle_requests.py      sets and removes throttles
throttled_moves.py        moves under a throttle that ends with them
move_bars.py              progress bars of moves
"""
