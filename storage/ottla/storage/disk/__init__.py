"""The `Disk` interface, its implementation for real disks, and slices of files.

disk_seam.py              operations on files and directories that storage needs
real_disk_driver.py       the real disk
real_file_driver.py       one real file
shared_calls_driver.py    sharing of overlapping calls, such as fsyncs of one directory
gathered_calls_driver.py  batching of calls in one thread, such as the creation of directories
write_back_driver.py      early write-back of dirty pages
descriptor_cache.py       the files that keep their descriptors open
file_places.py            paths of files after renames
disk_errors.py            classes of OSError: a full disk, a failed disk
directory_names.py        names of partition directories
slice.py                  a range of a file, sent without reading its bytes
"""
