"""The user's PyTorch, read as text and never imported.

``find`` says which PyTorch is at hand, ``verify`` looks claims up in it before they are shown, ``lookup`` finds words inside
a definition, ``resolve`` and ``signature`` follow a public name to its definition and its parameters, ``pages`` finds sentences
in documentation that the user has downloaded.
"""
