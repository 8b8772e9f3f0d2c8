"""Kafka's bytes: messages, headers, frames, and record batches.

schemas/              every message in our own notation, one file an API
schema.py             the notation, read
messages/             the message classes in use, one module each: generated, committed
generator.py          writes messages/, and makes the other messages in memory
codec.py              decode and encode: start here
codec_types.py        what message classes are made of; Records and Chunk
codec_source.py       what the two writers of source share
codec_decoder.py      writes one decode function per message and version
codec_encoder.py      writes one encode function per message and version
codec_runtime.py      what those functions call
native_codec.py       what the codec asks of a message whose codec was compiled ahead
codec_native.py       writes such a codec, one module a message, when a wheel is compiled
native_reader.py      reads the fields for those modules
native_writer.py      writes the fields for those modules
codec_examples.py     random messages, for tests
apis.py               the table of APIs: versions, who serves, who decides
answers.py            the frame of an answer
headers.py            frames, and request and response headers
crc.py                the checksum of Kafka, without what else its package imports
batch.py              the header of a record batch: read, checked, patched
batch_builder.py      batches, built
records.py            the records of a batch, scanned
record_fields.py      where the fields of many records lie, by numpy, for those who have it
record_layouts.py     the same of records that are alike
compression.py        the five codecs, bounded
offset_timestamps.py  timestamps of ListOffsets that stand for a place in the log
legacy.py             message sets v0 and v1, for the dump tool
"""
