"""One module per kind of input: bytes in, typed evidence out. A reader never judges."""
