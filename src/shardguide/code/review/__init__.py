"""Reads training code and finds what will hang, diverge, fail or be wrong, without importing or running any of it."""
