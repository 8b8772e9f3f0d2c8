"""Benchmarks in Spark.

spark_commands.py       measurements by name: start here
spark_reads.py          speed of reads by Ottla's data source and by others, in turns
spark_round_trip.py     records of all kinds, compared with the reads of another client
spark_mix.py            topics with records of all kinds
spark_confluent.py      confluent-kafka's consumer as a data source
spark_session.py        a Spark session with all these sources
spark_tier.py           copied segments read directly, through a broker, and as Parquet files
spark_faults.py         exactly-once delivery while brokers and drivers are killed
spark_faults_driver.py  the driver that is killed, and the check of its output
"""
