"""Records of topics: which to read, how to read them within bounds, and how to show them.

filter_language.py     parses the filter of a page of records (pure)
filter_terms.py        terms of a parsed filter, and their values for one record (pure)
record_text.py         keys, values and headers as text, cut to a size (pure)
field_formats.py       formats of keys and values that need no schema (pure)
schema_formats.py      Avro and Protobuf, with schemas of a registry or of files
read_query.py          the query of a page of records (pure)
record_reads_driver.py reads records within limits of count, bytes and time
"""
