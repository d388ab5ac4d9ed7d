"""More forms that Joinables take, and mistakes in them: hooks of their own, optimizers, autograd functions, hooks in the backward pass."""

from __future__ import annotations

H = """import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
"""
P = """
    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.pg
"""
RIGHT = {}
RIGHT["selfhook"] = (
    H
    + """
class A(Joinable, JoinHook):
    def __init__(self, pg):
        super().__init__()
        self.pg = pg
        self.x = torch.zeros(4)
    def sync(self, t):
        dist.all_reduce(t, group=self.pg)
    def __call__(self):
        Join.notify_join_context(self)
        y = torch.ones(4)
        self.sync(y)
        self.x += y
    def main_hook(self):
        self.sync(torch.zeros(4))
    def join_hook(self, **kwargs):
        return self
"""
    + P
)
RIGHT["nested"] = (
    H
    + """
def total(t, group):
    dist.all_reduce(t, group=group)
    return t

class A(Joinable):
    def __init__(self, pg):
        Joinable.__init__(self)
        self.pg = pg
        self.x = torch.zeros(4)
    def step(self, *, scale: float = 1.0):
        Join.notify_join_context(self)
        y = total(torch.ones_like(self.x) * scale, self.pg)
        self.x += y
    def join_hook(self, **kwargs):
        outer = self
        class Hook(JoinHook):
            def main_hook(self):
                total(torch.zeros_like(outer.x), outer.pg)
        return Hook()
"""
    + P
)
RIGHT["optim"] = (
    H
    + """
class S(torch.optim.SGD, Joinable):
    def __init__(self, params, lr, pg):
        torch.optim.SGD.__init__(self, params, lr=lr)
        Joinable.__init__(self)
        self.pg = pg
    def _params(self):
        return [p for group in self.param_groups for p in group["params"]]
    @torch.no_grad()
    def step(self, closure=None):
        Join.notify_join_context(self)
        for p in self._params():
            dist.all_reduce(p.grad, group=self.pg)
        return super().step(closure)
    def join_hook(self, **kwargs):
        return SH(self)
"""
    + P
    + """
class SH(JoinHook):
    def __init__(self, opt):
        self.opt = opt
    def main_hook(self):
        for p in self.opt._params():
            dist.all_reduce(torch.zeros_like(p), group=self.opt.pg)
"""
)
RIGHT["filter"] = (
    H
    + """
class G(Joinable):
    def __init__(self, model: nn.Module, pg):
        super().__init__()
        self.model = model
        self.pg = pg
    def sync(self):
        Join.notify_join_context(self)
        for p in self.model.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, group=self.pg)
    def join_hook(self, **kwargs):
        return GH(self)
"""
    + P
    + """
class GH(JoinHook):
    def __init__(self, g):
        self.g = g
    def main_hook(self):
        for p in self.g.model.parameters():
            dist.all_reduce(torch.zeros_like(p), group=self.g.pg)
"""
)
RIGHT["accum"] = (
    H
    + """
class G(nn.Module, Joinable):
    def __init__(self, pg):
        nn.Module.__init__(self)
        Joinable.__init__(self)
        self.net = nn.Linear(3, 3)
        self.pg = pg
        for p in self.net.parameters():
            p.register_post_accumulate_grad_hook(self._sync)
    def _sync(self, p):
        dist.all_reduce(p.grad, group=self.pg)
    def forward(self, x):
        Join.notify_join_context(self)
        return self.net(x)
    def join_hook(self, **kwargs):
        return GH(self)
"""
    + P
    + """
class GH(JoinHook):
    def __init__(self, g):
        self.g = g
    def main_hook(self):
        for p in reversed(list(self.g.net.parameters())):
            dist.all_reduce(torch.zeros_like(p), group=self.g.pg)
"""
)
RIGHT["func"] = (
    H
    + """
class Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pg):
        ctx.pg = pg
        y = x.clone()
        dist.all_reduce(y, group=pg)
        return y
    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        dist.all_reduce(g, group=ctx.pg)
        return g, None

class M(nn.Module, Joinable):
    def __init__(self, pg):
        super().__init__()
        Joinable.__init__(self)
        self.pg = pg
        self.w = nn.Parameter(torch.ones(2))
    def forward(self):
        Join.notify_join_context(self)
        return Mean.apply(self.w, self.pg)
    def join_hook(self, **kwargs):
        return MH(self)
"""
    + P
    + """
class MH(JoinHook):
    def __init__(self, m):
        self.m = m
    def main_hook(self):
        dist.all_reduce(torch.zeros(2), group=self.m.pg)
        dist.all_reduce(torch.zeros(2), group=self.m.pg)
"""
)
RIGHT["gather"] = (
    H
    + """
class M(Joinable):
    def __init__(self, pg, n=3):
        super().__init__()
        self.pg = pg
        self.n = n
        self.world = dist.get_world_size(pg)
    def __call__(self, x):
        Join.notify_join_context(self)
        out = [torch.zeros(self.n) for _ in range(self.world)]
        dist.all_gather(out, torch.full((self.n,), float(x)), group=self.pg)
        if self.world > 1:
            dist.barrier(self.pg)
        return out
    def join_hook(self, **kwargs):
        return MH(self)
"""
    + P
    + """
class MH(JoinHook):
    def __init__(self, m):
        self.m = m
    def main_hook(self):
        m = self.m
        out = [torch.zeros(m.n) for _ in range(m.world)]
        dist.all_gather(out, torch.zeros(m.n), group=m.pg)
        dist.barrier(m.pg)
"""
)
BROKEN = {}


def broken(n, base, *ch):
    t = RIGHT[base]
    for o, w in ch:
        assert o in t, (n, o)
        t = t.replace(o, w)
    BROKEN[n] = t


broken("selfhook-none", "selfhook", ("        self.sync(torch.zeros(4))", "        pass"))
broken("selfhook-shape", "selfhook", ("self.sync(torch.zeros(4))", "self.sync(torch.zeros(1))"))
broken("selfhook-notify", "selfhook", ("        Join.notify_join_context(self)\n", ""))
broken(
    "nested-bool", "nested", ("total(torch.zeros_like(outer.x), outer.pg)", "total(torch.zeros_like(outer.x), None)")
)
broken("nested-dtype", "nested", ("torch.zeros_like(outer.x)", "torch.zeros_like(outer.x, dtype=torch.int64)"))
broken(
    "nested-twice",
    "nested",
    (
        "                total(torch.zeros_like(outer.x), outer.pg)\n",
        "                total(torch.zeros_like(outer.x), outer.pg)\n                total(torch.zeros_like(outer.x), outer.pg)\n",
    ),
)
broken("optim-noinit", "optim", ("        Joinable.__init__(self)\n", ""))
broken(
    "optim-once",
    "optim",
    (
        "        for p in self.opt._params():\n            dist",
        "        p = self.opt._params()[0]\n        if True:\n            dist",
    ),
)
broken(
    "optim-late",
    "optim",
    ("        Join.notify_join_context(self)\n        for", "        for"),
    (
        "        return super().step(closure)",
        "        Join.notify_join_context(self)\n        return super().step(closure)",
    ),
)
broken("optim-op", "optim", ("torch.zeros_like(p), group", "torch.zeros_like(p), op=dist.ReduceOp.AVG, group"))
broken(
    "filter-none", "filter", ("            dist.all_reduce(torch.zeros_like(p), group=self.g.pg)", "            pass")
)
broken("filter-buf", "filter", ("in self.g.model.parameters()", "in self.g.model.buffers()"))
broken(
    "accum-none",
    "accum",
    (
        "        for p in reversed(list(self.g.net.parameters())):\n            dist.all_reduce(torch.zeros_like(p), group=self.g.pg)",
        "        dist.all_reduce(torch.zeros(1), group=self.g.pg)",
    ),
)
broken(
    "func-one",
    "func",
    (
        "        dist.all_reduce(torch.zeros(2), group=self.m.pg)\n        dist.all_reduce(torch.zeros(2), group=self.m.pg)\n",
        "        dist.all_reduce(torch.zeros(2), group=self.m.pg)\n",
    ),
)
broken("func-nb", "func", ("        dist.all_reduce(g, group=ctx.pg)\n", ""))
broken(
    "gather-order",
    "gather",
    (
        "        dist.all_gather(out, torch.zeros(m.n), group=m.pg)\n        dist.barrier(m.pg)\n",
        "        dist.barrier(m.pg)\n        dist.all_gather(out, torch.zeros(m.n), group=m.pg)\n",
    ),
)
broken("gather-shape", "gather", ("torch.zeros(m.n), group", "torch.zeros(m.n + 1), group"))
broken("gather-nobarrier", "gather", ("        dist.barrier(m.pg)\n", ""))
broken("gather-hookarg", "gather", ("        return MH(self)", "        return MH()"))
broken("gather-cond", "gather", ("        if self.world > 1:", "        if x > 0:"))
