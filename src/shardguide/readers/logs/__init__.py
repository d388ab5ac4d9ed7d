"""Logs of any size: which known words stand where, on which rank, and what was raised. Streamed; nothing is judged here."""
