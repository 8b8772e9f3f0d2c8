"""Client of a schema registry, and the wire format of records with a schema id.

schema_values.py    schemas, references and registered schemas
registry_errors.py  errors of schemas, registries and records, one class for each cause
framing.py          schema ids before payloads and in headers (pure)
subjects.py         names of the subjects under which schemas are registered (pure)
failover.py         order and pauses of the attempts of one call (pure)
schema_registry.py  the registry's client over any transport: calls, caches, references
http_registry.py    registries over HTTP, for trio, asyncio and blocking programs
rest_store.py       a store of schemas in a directory, which implements a registry's API
file_registry.py    a registry in a directory, for tests and offline programs
"""
