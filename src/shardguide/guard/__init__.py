"""The promise never to execute: an audit hook that is on in production.

Every front end calls :func:`install` before it reads anything. From then on, whatever the product tries that it
promised not to do raises :class:`GuardViolation`, wherever in the process it happens:

- start a process, connect or open a socket,
- import PyTorch, a module of the user's, or anything that is neither the standard library, Shardguide nor one of its
  declared dependencies,
- run what was read: ``exec``, ``eval``, unpickling a global, unmarshalling, building code objects, foreign libraries
  (parsing to a syntax tree is allowed),
- write, rename, remove or change the mode of a file outside the notebook and the paths that the user approved.

What it is not: a sandbox against code that already runs. It catches mistakes of ours and of our dependencies, so that
hostile *data* cannot become code. Some system calls raise no audit event (``os.mkfifo``, ``os.mknod``); a test keeps
them out of the product's source.

CPython has no way to remove an audit hook, and nothing that is read (configuration, environment, notebook) is consulted
by this one.
"""

from __future__ import annotations

from shardguide.guard.hook import PERMITS, GuardViolation, allow_write, install, installed, own, permit, violations

__all__ = ["PERMITS", "GuardViolation", "allow_write", "install", "installed", "own", "permit", "violations"]
