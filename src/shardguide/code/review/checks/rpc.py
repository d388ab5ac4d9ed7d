"""DDP together with the RPC framework (FSD512, 513), and RPC's end (FSD520)."""

from __future__ import annotations

import ast

from ..records import Call
from ..walk import Walker
from .devices import alone

_REMOTE = ("rpc_sync", "rpc_async", "remote", "RemoteModule")


def begun(walker: Walker, call: Call) -> None:
    """init_rpc."""
    if ".rpc." in call.full and not alone(call.node):
        walker.fact("rpc", call.node)


def remote(walker: Walker, call: Call) -> None:
    """A call on another worker."""
    if ".rpc." in call.full or call.name == "RemoteModule":
        walker.fact("remote", call.node)


def ended(walker: Walker, call: Call) -> None:
    """rpc.shutdown."""
    if ".rpc." in call.full:
        walker.fact("rpc shutdown", call.node)


def backward(walker: Walker, call: Call) -> None:
    """loss.backward()."""
    # With the number of a context it is the distributed backward, of an RRef.
    if call.owner and not call.node.args and not any(owner.kind == "ddp" for owner in call.owner):
        walker.fact("plain backward", call.node)


def distributed_backward(walker: Walker, call: Call) -> None:
    """dist_autograd.backward."""
    if ".autograd." in call.full:
        walker.fact("distributed backward", call.node)


def optimizer(walker: Walker, call: Call) -> None:
    """An optimizer that is made."""
    if call.full.endswith(".DistributedOptimizer"):
        walker.fact("distributed optimizer", call.node)
    elif call.full.startswith("torch.optim.") and call.node.args:
        walker.fact("plain optimizer", call.node)


def project(walker: Walker) -> None:
    """DDP and RPC in one program."""
    facts = walker.facts
    if facts.get("rpc") and not facts.get("rpc shutdown"):
        for file, node in facts["rpc"][:1]:
            walker.report_at("FSD520", file, node, False)
    if not facts.get("ddp") or not (facts.get("remote") or facts.get("rpc")):
        return
    files = {file for fact in ("rpc", "remote") for file, _ in facts.get(fact, ())}
    if not facts.get("distributed backward"):
        for file, node in facts.get("plain backward", ()):
            if file in files and isinstance(node, ast.Call):
                walker.report_at("FSD512", file, node, False)
    if not facts.get("distributed optimizer"):
        for file, node in facts.get("plain optimizer", ()):
            if file in files:
                walker.report_at("FSD513", file, node, False)


CALLS = {
    "init_rpc": [begun],
    "shutdown": [ended],
    "backward": [distributed_backward],
    "optimizer": [optimizer],
    **{name: [remote] for name in _REMOTE},
}
METHODS = {"backward": [backward]}
PROJECT = [project]
