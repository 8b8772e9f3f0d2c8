"""Tiered storage: copies of closed segments in an object store (KIP-405).

Object stores:

store_seam.py      interface of an object store, and its errors: start here
store_settings.py  settings of the object store, and their checks
store_errors.py    errors of obstore, converted into those of the interface
obstore_driver.py  S3, Google Cloud Storage, Azure or a directory, through the library obstore
memory_store.py    an object store in memory
counted_store.py   counts of the requests and bytes that a store bills
object_names.py    keys of a segment's objects
cluster_marker.py  the object that reserves a prefix for one cluster
manifest.py        the manifest of a segment, from which its metadata can be restored

Transfer of segments:

segment_source.py         interface of a local segment that is uploaded
segment_upload_driver.py  upload of a segment, and deletion of a copied one: start here
stepped_crc_driver.py     CRC of large data, computed in steps
reads/                    reads of copied segments, with caches and read-ahead

Decisions about copied segments:

remote_segment.py   a copied segment with its states, and a change of its state
remote_records.py   records of the metadata topic, in Kafka's format
remote_metadata.py  the copied segments of one partition, with their look-ups: start here
lineage.py          leader epochs of a log, compared with those of a copied segment
copy_plan.py        local segments to copy, and how far a log is already copied
expiry_plan.py      copied segments to delete, in order
local_plan.py       local segments to delete, by local retention
relief_plan.py      local segments to delete, for free space

What a bucket contains, read without a cluster:

bucket_scan.py       uploaded segments in a listing of a bucket (pure)
stored_partition.py  the log of a partition, chosen from all uploaded segments (pure)
bucket_driver.py     reads listings, manifests, indexes and records: start here
"""
