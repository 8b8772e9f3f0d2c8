"""The broker as a member of the cluster: registration, heartbeats, drain.

registration.py        content of a broker's registration
lifecycle.py           the states of a membership: registration, serving, controlled shutdown
lifecycle_driver.py    sends the registrations and heartbeats that `lifecycle` decides
attendance_driver.py   keeps a call open, whose end shows the controller that the broker died
assignments_driver.py  reports the log directories of replicas to the controller
drain_api.py           DrainBroker, an API of Ottla's own
"""
