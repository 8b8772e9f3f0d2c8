"""What clients report of themselves (`__client_metrics`), rolled up by windows.

points.py           records as Arrow: who pushed, when, and every point (pure)
quantiles.py        quantiles of many histograms together (pure)
frames.py           the rollup itself: functions from DataFrames to DataFrames
ledger.py           what a stream remembers between its batches, kept with its checkpoint
stream.py           the stream: batch by batch, into Parquet and a topic, each rollup once
"""
