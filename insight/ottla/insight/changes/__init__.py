"""Changes of a cluster that take several steps, for commands and for pages of the console.

A function checks the conditions of a change and raises RefusedError with the next step, or makes
the change. Functions that take long report their progress to a `Report` function.

progress.py        type of the function that receives progress (pure)
cordon_driver.py   cordons of brokers, which place no new replicas on them
drain_driver.py    drains of brokers, which move their leaderships away
broker_registrations_driver.py  deletion of a stopped broker's registration
broker_removal_driver.py  removal of a broker: moves, wait for its stop, unregistration
voter_plans.py     plans of changes of the quorum's voters (pure)
voter_changes_driver.py  the steps of such a plan
controller_registrations_driver.py  deletion of a removed controller's registration
move_plan_driver.py  start and cancellation of the plan of moves that the controllers carry out
reset_plan_driver.py  new offsets of a reset, within the records of each partition
redrive_driver.py  moves of dead letters back to the partitions of their records
redrive_letters.py   origin and cause of dead letters, and the selection of letters (pure)
redrive_progress.py  stored progress of a redrive (pure)
redrive_reader_driver.py  records of dead letter topics and of source topics
"""
