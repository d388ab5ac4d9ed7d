"""Hardware facts with their sources: GPUs (``table``), sizes of memory (``memory``), links and counts (``links``)."""
