"""The processes of a StreamPipeline's pods: one entry point for driver and executor, in the image and on the embedded plane."""
