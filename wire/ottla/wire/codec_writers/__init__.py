"""Writers of the codec's source code, from the schemas.

codec_source.py   source text under construction, and the properties of a version
codec_decoder.py  writes one decode function per message and version
codec_encoder.py  writes one encode function per message and version
codec_native.py   writes a codec that is compiled ahead of time, one module per message
"""
