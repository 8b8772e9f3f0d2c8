"""Commands for tiered storage. Most of them read only the bucket and need no cluster.

tier.py           `ottla tier`: declarations of its verbs
store_options.py  options for the bucket, and a function that opens its object store
progress_line.py  progress line on the terminal while a bucket is read
tier_topics.py    `ottla tier topics`
tier_verify.py    `ottla tier verify`
tier_cost.py      `ottla tier cost`
request_costs.py  number and price of requests to an object store (pure)
tier_status.py    `ottla tier status`
tier_offload.py   `ottla tier offload`
tier_explain.py   `ottla tier explain`
tier_fetch.py     `ottla tier fetch`
stored_log.py     the log of one partition in a bucket
tier_restore.py   `ottla tier restore`
restore_plan.py   topics to restore, with their metadata records (pure)
restored_nodes_driver.py  restores into the formatted nodes of a new cluster
restored_files_driver.py  writes the logs of restored partitions
restored_groups.py  committed offsets of groups after a restore (pure)
internal_topics_driver.py  metadata records and logs of internal topics
adopted_logs_driver.py  writes empty logs of partitions whose records stay in the bucket
"""
