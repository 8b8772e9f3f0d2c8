"""Kafka's protocol on the listener of a controller, for administrators (KIP-919).

kafka_service.py         the objects that answer clients, and their wiring: start here
describe_controllers.py  DescribeCluster: the registered controllers
own_settings.py          settings of this controller: described, and refused changes
"""
