"""What a producer is made of.

producer_link.py        a producer's connection to one broker
accumulator.py          everything a producer has taken and not delivered (pure)
producer_identities.py  who earlier producers of this process were (pure)
producer_lane.py        one partition's batches: order, sequences, what an answer means (pure)
record_encoding.py      many records at a time as a batch holds them (pure)
record_run.py           many records of one partition, encoded as batches take them (pure)
partitioner.py          which partition a record belongs to (pure)
placement.py            the partitioners of one producer, the application's own first (pure)
delivery.py             the delivery report of one record
"""
