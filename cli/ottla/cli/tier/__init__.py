"""Commands for tiered storage. Most of them need only the bucket, and no cluster.

tier.py           `ottla tier`: its verbs
store_options.py  options that name the bucket, and its opening
progress_line.py  the progress line of long reads
tier_topics.py    `ottla tier topics`
tier_verify.py    `ottla tier verify`
tier_cost.py      `ottla tier cost`
request_costs.py  requests and money per topic (pure)
tier_status.py    `ottla tier status`
tier_explain.py   `ottla tier explain`
tier_fetch.py     `ottla tier fetch`
stored_log.py     the log of one partition in a bucket
tier_restore.py   `ottla tier restore`
restore_plan.py   topics to restore, with their metadata records (pure)
restored_files_driver.py  writes the logs of restored partitions
adopted_logs_driver.py  writes logs whose records stay in the bucket
"""
