"""Registration and liveness of brokers, registration of controllers, and changes of the voters.

brokers.py      registration, heartbeats, fencing, controlled shutdown
controllers.py  registrations of controllers
voters.py       changes of the voter set, which clients request
sessions.py     sessions of brokers: in-memory state of the active controller
attendances.py  detection of brokers whose process has ended, before their sessions expire
"""
