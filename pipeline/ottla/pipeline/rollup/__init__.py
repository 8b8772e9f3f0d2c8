"""Rollups of client metrics (`__client_metrics`) by time window.

points.py           records as Arrow: the client, the time, and every point (pure)
quantiles.py        common quantiles of many histograms (pure)
frames.py           the rollup itself: functions from DataFrames to DataFrames
ledger.py           a stream's state between its batches, stored with its checkpoint
stream.py           the stream, which writes each rollup once, as Parquet files and to a topic
"""
