"""The guided conversation: it asks which task it is, then only what the workflow still needs, and shows the workflow's answer.

``talk`` is the conversation itself and knows no terminal; ``lines`` and ``terminal`` read what the user types.
"""
