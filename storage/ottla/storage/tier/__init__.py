"""Tiered storage: copies of closed segments in an object store.

store_seam.py      interface of an object store, and its errors: start here
store_settings.py  settings of the object store, and their checks
store_errors.py    errors of obstore, converted into those of the interface
obstore_driver.py  S3, Google Cloud Storage, Azure or a directory, through the library obstore
memory_store.py    an object store in memory
object_names.py    keys of a segment's objects
cluster_marker.py  the object that reserves a prefix for one cluster
manifest.py        the manifest of a segment, from which its metadata can be restored
"""
