"""Order of delivery in share groups: delays, back-off, order by key and priority.

Extensions of KIP-932, off by default. A share partition without them never uses this package.

ordering_rules.py  the settings of a group and a topic that apply, and the back-off
record_traits.py   due time, key and priority of a record, from its headers
delivery_order.py  records that are not settled, by the reason why they wait: start here
"""
