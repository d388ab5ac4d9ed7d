"""The record: the types that carry every answer from the workflows to every front end."""
