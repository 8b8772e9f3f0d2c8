"""Pages of records: selection of records, reads within limits, and conversion to text.

filter_language.py     parses the filter of a page of records (pure)
filter_terms.py        terms of a parsed filter, and their values for one record (pure)
record_text.py         keys and values as text of limited size, without a schema (pure)
schema_formats_driver.py  Avro, Protobuf and JSON Schema, with schemas of a registry or of files
record_rows.py         records as rows of pages and as downloads (pure)
read_query.py          the query of a page of records (pure)
record_reads_driver.py  reads records within limits of count, bytes and time
record_tail_driver.py  reads new records as they arrive
new_record.py          the form that writes one record (pure)
"""
