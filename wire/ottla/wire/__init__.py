"""Kafka's protocol: messages, headers, frames, and record batches.

schemas/              the schema of every message, one file per API
schema.py             parser of the schemas
messages/             the message classes in use, one module each: generated, committed
generator.py          writes messages/, and creates the other message classes in memory
codec.py              decode and encode: start here
codec_types.py        base classes of messages; Records and Chunk
codec_writers/        writers of the decode and encode functions, per message and version
codec_runtime.py      runtime of these functions
native_codec.py       interface to messages whose codec is compiled ahead of time
native_reader.py      reads the fields for those messages
native_writer.py      writes the fields for those messages
flat/                 requests for one topic, decoded and answered without message objects
codec_examples.py     random messages, for tests
apis.py               the table of APIs, one row each
api.py                the row of an API: versions, permissions, deciding node, refusal, cost
rpc_needs.py          the operations required by gRPC methods between nodes
refusals.py           the response to a refused request, derived from the schemas
answers.py            the frame of a response
headers.py            frames, and request and response headers
crc.py                Kafka's checksum, without the other imports of its package
batch.py              the header of a record batch: read, checked, patched
batch_builder.py      builder of batches
records.py            scanner of the records in a batch
record_fields.py      positions of the fields of many records, with numpy if installed
record_layouts.py     positions in records of one size
compression.py        the five codecs, with a bound on decompressed bytes
offset_timestamps.py  special timestamps of ListOffsets
legacy.py             message sets v0 and v1, for the dump tool
"""
