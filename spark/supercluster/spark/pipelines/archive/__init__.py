"""The archive of streams as Parquet files: written in rounds, verified, and replayed into a stream."""
