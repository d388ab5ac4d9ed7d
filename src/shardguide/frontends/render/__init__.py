"""Guidance as text for people: terminal, Markdown."""
