"""Reads the user's Python as text, without running it."""
