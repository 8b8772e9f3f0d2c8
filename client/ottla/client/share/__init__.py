"""Parts of a share consumer, which is a member of a share group (KIP-932). The members consume
partitions together, like a queue.

share_member            a member of a share group: its heartbeats and its assignment; pure
share_membership        the task that sends the member's heartbeats
share_session           the session with one broker: epochs, partitions, requests; pure
acknowledgement_ranges  acknowledgements as the ranges of a request; pure
share_acknowledgements  records locked at one broker, and their acknowledgements; pure
share_fetched           acquired records of one partition in a response; pure
share_records           records and batches that the application acknowledges
share_buffer            acquired records that the application has not received yet
share_link              the connection to one broker: fetches, acknowledgements, renewals
"""
