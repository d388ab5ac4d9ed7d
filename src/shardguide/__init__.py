"""Shardguide: an FSDP colleague. Plans, configures and troubleshoots FSDP training in PyTorch, offline and with its sources."""
