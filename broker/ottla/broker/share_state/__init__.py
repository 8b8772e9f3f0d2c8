"""Share coordinator: durable state of share partitions (KIP-932).

share_partition_state.py  state of one share partition: epochs, start offset, fencing: start here
state_batches.py      merge of the delivery states of offset ranges
"""
