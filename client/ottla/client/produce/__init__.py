"""The parts of a producer.

producer_link.py        the connection of a producer to one broker
accumulator.py          buffered records that are not delivered yet (pure)
producer_identities.py  producer ids that later producers of this process reuse (pure)
partition_queue.py      the batches of one partition: order, sequences, responses (pure)
record_arguments.py     validation of one record from the application (pure)
record_encoding.py      encoding of many records at once (pure)
record_run.py           interface of a run: many records that encode themselves (pure)
many_records.py         records sent in one call, and their delivery reports (pure)
partitioner.py          the built-in partitioners (pure)
placement.py            choice of a partition by the available partitioners (pure)
delivery.py             the delivery report of one record
flush.py                waits until all buffered records are delivered or have failed
"""
