"""The parts of a share consumer: a member of a share group, which is a queue (KIP-932).

share_member            a member of a share group: its heartbeats and its assignment; pure
share_membership        the task that sends these heartbeats
share_session           the session with one broker: epochs, partitions, requests; pure
acknowledgement_ranges  acknowledgements as the ranges of a request; pure
share_acknowledgements  records locked at one broker, and their acknowledgements; pure
share_fetched           acquired records of one partition in a response; pure
share_records           records and batches, as the application acknowledges them
share_buffer            acquired records that the application has not received yet
share_link              the connection to one broker: fetches, acknowledgements, renewals
"""
