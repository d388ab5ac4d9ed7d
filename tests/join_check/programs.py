"""Right programs with Joinables of one's own, and the ways in which people get them wrong.

Each variant is a right program with some of its text replaced. ``runs`` says what it does for real with uneven inputs:
"fails" (hangs until Gloo gives up, or raises), "wrong" (ends with other values than the right program), or "" where it was not run.
"""

from __future__ import annotations

from typing import NamedTuple

HEAD = """import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
"""

METER = (
    HEAD
    + '''

class Meter(Joinable):
    """Sum and maximum over all ranks, in every iteration."""

    def __init__(self, device, group):
        super().__init__()
        self.device = device
        self.group = group
        self.total = torch.zeros(1, device=device)
        self.best = torch.zeros(2, device=device)

    def add(self, value):
        Join.notify_join_context(self)
        counted = torch.tensor([float(value)], device=self.device)
        dist.all_reduce(counted, group=self.group)
        self.total += counted
        pair = torch.tensor([float(value), 1.0], device=self.device)
        dist.all_reduce(pair, op=dist.ReduceOp.MAX, group=self.group)
        self.best = torch.maximum(self.best, pair)

    def common_rank(self, rank, consider):
        candidate = torch.tensor([rank if consider else -1], device=self.device)
        dist.all_reduce(candidate, op=dist.ReduceOp.MAX, group=self.group)
        return candidate.item()

    def join_hook(self, **kwargs):
        return MeterHook(self, kwargs.get("sync", False))

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.group


class MeterHook(JoinHook):
    def __init__(self, meter, sync):
        super().__init__()
        self.meter = meter
        self.sync = sync

    def main_hook(self):
        dist.all_reduce(torch.zeros(1, device=self.meter.device), group=self.meter.group)
        least = torch.full((2,), float("-inf"), device=self.meter.device)
        dist.all_reduce(least, op=dist.ReduceOp.MAX, group=self.meter.group)

    def post_hook(self, is_last_joiner):
        if not self.sync:
            return
        common = self.meter.common_rank(dist.get_rank(self.meter.group), is_last_joiner)
        dist.broadcast(self.meter.total, src=common, group=self.meter.group)


def train(rank, values):
    meter = Meter(torch.device("cpu"), dist.group.WORLD)
    with Join([meter], sync=True):
        for value in values:
            meter.add(value)
    return [meter.total.item()]
'''
)

SCALE = (
    HEAD
    + '''

class Scale(torch.nn.Module, Joinable):
    """A layer that sums the gradient of its weight over all ranks in the backward pass."""

    def __init__(self, group):
        super().__init__()
        Joinable.__init__(self)
        self.group = group
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.weight.register_hook(self._reduce)

    def _reduce(self, gradient):
        dist.all_reduce(gradient, group=self.group)
        return gradient

    def forward(self, inputs):
        Join.notify_join_context(self)
        return self.weight * inputs

    def join_hook(self, **kwargs):
        return ScaleHook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.group


class ScaleHook(JoinHook):
    def __init__(self, scale):
        self.scale = scale

    def main_hook(self):
        dist.all_reduce(torch.zeros_like(self.scale.weight), group=self.scale.group)


def train(rank, values):
    scale = Scale(dist.group.WORLD)
    seen = 0.0
    with Join([scale]):
        for value in values:
            scale.weight.grad = None
            scale(torch.full((3,), value)).sum().backward()
            seen += scale.weight.grad[0].item()
    return [seen]
'''
)

STEPS = (
    HEAD
    + '''

class Averager(Joinable):
    """Sums every parameter's gradient over the ranks in ``step``, and counts in every second one."""

    def __init__(self, params, group=None, count=True):
        super().__init__()
        self.params = list(params)
        self.group = group if group is not None else dist.group.WORLD
        self.count = count
        self.round = 0
        self.steps = torch.zeros((), dtype=torch.int64)

    def step(self):
        Join.notify_join_context(self)
        works = []
        for p in self.params:
            works.append(dist.all_reduce(p.data, group=self.group, async_op=True))
        for work in works:
            work.wait()
        if self.count:
            one = torch.ones((), dtype=torch.int64)
            dist.all_reduce(one, group=self.group)
            self.steps += one
        if self.round % 2 == 1:
            mark = torch.full((), self.round, dtype=torch.int64)
            dist.broadcast(mark, src=0, group=self.group)
        self.round += 1

    def join_hook(self, **kwargs):
        return AveragerHook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.group


class AveragerHook(JoinHook):
    def __init__(self, averager):
        self.averager = averager

    def main_hook(self):
        averager = self.averager
        for p in averager.params:
            dist.all_reduce(torch.zeros_like(p.data), group=averager.group)
        if averager.count:
            zero = torch.zeros((), dtype=torch.int64)
            dist.all_reduce(zero, group=averager.group)
        if averager.round % 2 == 1:
            dist.broadcast(torch.zeros((), dtype=torch.int64), src=0, group=averager.group)
        averager.round += 1


def train(rank, values):
    params = [torch.full((2, 2), 1.0), torch.full((3,), 1.0)]
    averager = Averager(params)
    seen = 0.0
    with Join([averager]):
        for value in values:
            for p in params:
                p.fill_(value)
            averager.step()
            seen += sum(p.sum().item() for p in params)
    return [seen, averager.steps.item()]
'''
)

SERVER = (
    HEAD
    + '''

class Server(Joinable):
    """Gathers a row from every rank, through a helper, then tells all whether to go on."""

    def __init__(self, width, group):
        super().__init__()
        self.width = width
        self.group = group
        self.world_size = dist.get_world_size(group)
        self.rows = 0.0

    def _gather(self, row):
        rows = torch.zeros(self.world_size * self.width)
        dist.all_gather_into_tensor(rows, row, group=self.group)
        return rows

    def __call__(self, row, more=True):
        Join.notify_join_context(self)
        rows = self._gather(row)
        self.rows += rows.sum().item()
        flag = torch.ones(1) if self.width > 2 else torch.zeros(1)
        dist.all_reduce(flag, group=self.group)
        if flag.item() > 0:
            dist.barrier(group=self.group)
        return rows

    def join_hook(self, **kwargs):
        return ServerHook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.group


class ServerHook(JoinHook):
    def __init__(self, server):
        self.server = server

    def main_hook(self):
        server = self.server
        server._gather(torch.zeros(server.width))
        flag = torch.zeros(1)
        dist.all_reduce(flag, group=server.group)
        if flag.item() > 0:
            dist.barrier(group=server.group)


def train(rank, values):
    server = Server(4, dist.group.WORLD)
    with Join([server]):
        for value in values:
            server(torch.full((4,), value, dtype=torch.float32))
    return [server.rows]
'''
)

PAIR = (
    HEAD
    + """from torch.nn.parallel import DistributedDataParallel as DDP


class Counter(Joinable):
    def __init__(self, group):
        super().__init__()
        self.group = group
        self.seen = torch.zeros(1)

    def count(self, number):
        Join.notify_join_context(self)
        number = torch.tensor([float(number)])
        dist.all_reduce(number, group=self.group)
        self.seen += number

    def join_hook(self, **kwargs):
        return CounterHook(self)

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return self.group


class CounterHook(JoinHook):
    def __init__(self, counter):
        self.counter = counter

    def main_hook(self):
        dist.all_reduce(torch.zeros(1), group=self.counter.group)


def train(rank, values):
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    counter = Counter(dist.group.WORLD)
    with Join([model, counter]):
        for value in values:
            optimizer.zero_grad()
            model(torch.full((1, 2), value)).sum().backward()
            optimizer.step()
            counter.count(1)
    weight = [p.sum().item() for p in model.parameters()]
    return [counter.seen.item(), *weight] if rank else weight
"""
)

RIGHT = {"meter": METER, "scale": SCALE, "steps": STEPS, "server": SERVER, "pair": PAIR}


class Variant(NamedTuple):
    """One way to get a program wrong."""

    name: str
    base: str
    changes: tuple[tuple[str, str], ...]
    code: str  # the rule that must say so
    runs: str


_SHADOW = "        dist.all_reduce(torch.zeros(1, device=self.meter.device), group=self.meter.group)\n"
_LEAST = (
    '        least = torch.full((2,), float("-inf"), device=self.meter.device)\n'
    "        dist.all_reduce(least, op=dist.ReduceOp.MAX, group=self.meter.group)\n"
)
_NOTIFY = "        Join.notify_join_context(self)\n"

VARIANTS = (
    Variant("no super().__init__", "meter", (("        super().__init__()\n        self.device", "        self.device"),), "FSD607", ""),
    Variant("only Module.__init__", "scale", (("        Joinable.__init__(self)\n", ""),), "FSD607", ""),
    Variant("a base that forgets it", "meter", (("class Meter(Joinable):", "class Base(Joinable):\n    def __init__(self, device):\n        self.device = device\n\n\nclass Meter(Base):"), ("        super().__init__()\n        self.device = device", "        super().__init__(device)")), "FSD607", ""),
    Variant("no join_hook", "meter", (("    def join_hook(self, **kwargs):\n        return MeterHook(self, kwargs.get(\"sync\", False))\n", ""),), "FSD605", "fails"),
    Variant("no join_device", "meter", (("    @property\n    def join_device(self):\n        return self.device\n", ""),), "FSD605", "fails"),
    Variant("join_device set in the constructor", "meter",
            (("    @property\n    def join_device(self):\n        return self.device\n", ""), ("        self.device = device\n", "        self.device = device\n        self.join_device = device\n")),
            "FSD605", "fails"),
    Variant("join_process_group misspelt", "meter", (("def join_process_group", "def join_group"),), "FSD605", "fails"),
    Variant("join_device no property", "meter", (("    @property\n    def join_device", "    def join_device"),), "FSD621", "fails"),
    Variant("join_process_group no property", "meter", (("    @property\n    def join_process_group", "    def join_process_group"),), "FSD621", "fails"),
    Variant("join_hook returns nothing", "meter", (("        return MeterHook(self, kwargs", "        MeterHook(self, kwargs"),), "FSD622", "fails"),
    Variant("join_hook returns the class", "scale", (("return ScaleHook(self)", "return ScaleHook"),), "FSD622", "fails"),
    Variant("the hook is made with too little", "meter", (('MeterHook(self, kwargs.get("sync", False))', "MeterHook(self)"),), "FSD622", "fails"),
    Variant("join_hook takes no keywords", "meter", (("def join_hook(self, **kwargs)", "def join_hook(self)"), ('kwargs.get("sync", False)', "True")), "FSD623", "fails"),
    Variant("keyword misspelt in Join", "meter", (("sync=True)", "synch=True)"),), "FSD623", "wrong"),
    Variant("keyword that nobody reads", "pair", (("Join([model, counter])", "Join([model, counter], divide_by_world_size=False)"),), "FSD623", ""),
    Variant("keyword that is needed and not passed", "meter", (('kwargs.get("sync", False)', 'kwargs["sync"]'), ("Join([meter], sync=True)", "Join([meter])")), "FSD623", "fails"),
    Variant("no notify", "meter", ((_NOTIFY, ""),), "FSD608", "fails"),
    Variant("no notify in a layer", "scale", ((_NOTIFY, ""),), "FSD608", "fails"),
    Variant("notify at the end", "meter", ((_NOTIFY, ""), ("        self.best = torch.maximum(self.best, pair)\n", "        self.best = torch.maximum(self.best, pair)\n" + _NOTIFY)), "FSD609", "fails"),
    Variant("notify between the two", "meter", ((_NOTIFY, ""), ("        self.total += counted\n", "        self.total += counted\n" + _NOTIFY)), "FSD609", ""),
    Variant("notify names another object", "scale", (("Join.notify_join_context(self)", "Join.notify_join_context(self.group)"),), "FSD638", "fails"),
    Variant("notify twice", "meter", (("        self.total += counted\n", "        self.total += counted\n" + _NOTIFY),), "FSD639", "fails"),
    Variant("notify under a condition", "meter", ((_NOTIFY, "        if value > 1.0:\n            Join.notify_join_context(self)\n"),), "FSD608", "fails"),
    Variant("main_hook is empty", "meter", ((_SHADOW + _LEAST, "        pass\n"),), "FSD610", "fails"),
    Variant("main_hook misspelt", "scale", (("def main_hook", "def mainhook"),), "FSD610", "fails"),
    Variant("second collective not shadowed", "meter", ((_LEAST, ""),), "FSD610", "fails"),
    Variant("first collective not shadowed", "meter", ((_SHADOW, ""),), "FSD610", "fails"),
    Variant("one too many", "scale", (("group=self.scale.group)\n", "group=self.scale.group)\n        dist.barrier(group=self.scale.group)\n"),), "FSD611", "fails"),
    Variant("in another order", "meter", ((_SHADOW + _LEAST, _LEAST + _SHADOW),), "FSD612", "fails"),
    Variant("another collective", "scale", (("        dist.all_reduce(torch.zeros_like(self.scale.weight), group=self.scale.group)", "        dist.broadcast(torch.zeros_like(self.scale.weight), src=0, group=self.scale.group)"),), "FSD612", "fails"),
    Variant("gather for all_gather", "server", (("        server._gather(torch.zeros(server.width))", "        dist.all_gather([torch.zeros(server.width) for _ in range(server.world_size)], torch.zeros(server.width), group=server.group)"),), "FSD612", ""),
    Variant("another shape", "meter", (("torch.zeros(1, device=self.meter.device)", "torch.zeros(2, device=self.meter.device)"),), "FSD614", "fails"),
    Variant("a scalar for a vector", "meter", (("torch.zeros(1, device=self.meter.device)", "torch.tensor(0.0, device=self.meter.device)"),), "FSD614", ""),
    Variant("another dtype", "meter", (("torch.zeros(1, device=self.meter.device)", "torch.zeros(1, dtype=torch.float64, device=self.meter.device)"),), "FSD614", "fails"),
    Variant("integers in the hook", "meter", (("torch.zeros(1, device=self.meter.device)", "torch.tensor([0], device=self.meter.device)"),), "FSD614", ""),
    Variant("float count in the hook", "steps", (("zero = torch.zeros((), dtype=torch.int64)", "zero = torch.zeros(())"),), "FSD614", "fails"),
    Variant("another operation", "meter", (("least, op=dist.ReduceOp.MAX, group", "least, group"),), "FSD615", ""),
    Variant("another source", "steps", (("dist.broadcast(torch.zeros((), dtype=torch.int64), src=0", "dist.broadcast(torch.zeros((), dtype=torch.int64), src=1"),), "FSD615", "fails"),
    Variant("hook on the default group", "meter", (("torch.zeros(1, device=self.meter.device), group=self.meter.group)", "torch.zeros(1, device=self.meter.device))"), ("Meter(torch.device(\"cpu\"), dist.group.WORLD)", "Meter(torch.device(\"cpu\"), dist.new_group([0, 1]))")), "FSD613", "fails"),
    Variant("collective on another group than join_process_group", "meter", (("Meter(torch.device(\"cpu\"), dist.group.WORLD)", "Meter(torch.device(\"cpu\"), dist.new_group([0, 1]))"), ("dist.all_reduce(counted, group=self.group)", "dist.all_reduce(counted)"), ("torch.zeros(1, device=self.meter.device), group=self.meter.group)", "torch.zeros(1, device=self.meter.device))")), "FSD625", ""),
    Variant("async and never waited in the hook", "steps", (("            dist.all_reduce(torch.zeros_like(p.data), group=averager.group)", "            dist.all_reduce(torch.zeros_like(p.data), group=averager.group, async_op=True)"),), "FSD616", ""),
    Variant("async and never waited in the iteration", "steps", (("        for work in works:\n            work.wait()\n", ""),), "FSD616", ""),
    Variant("one for all parameters", "steps", (("        for p in averager.params:\n            dist.all_reduce(torch.zeros_like(p.data), group=averager.group)", "        p = averager.params[0]\n        dist.all_reduce(torch.zeros_like(p.data), group=averager.group)"),), "FSD610", "fails"),
    Variant("parameters backwards", "steps", (("for p in averager.params:", "for p in reversed(averager.params):"),), "FSD612", "fails"),
    Variant("without the last parameter", "steps", (("for p in averager.params:", "for p in averager.params[:-1]:"),), "FSD610", "fails"),
    Variant("the hook leaves the count out", "steps", (("        if averager.count:\n            zero = torch.zeros((), dtype=torch.int64)\n            dist.all_reduce(zero, group=averager.group)\n", ""),), "FSD610", "fails"),
    Variant("the hook counts always", "steps", (("        if averager.count:\n            zero", "        if True:\n            zero"), ("Averager(params)", "Averager(params, count=False)")), "FSD611", "fails"),
    Variant("the counter stands still in the hook", "steps", (("        averager.round += 1\n", ""),), "FSD636", "fails"),
    Variant("the broadcast of every second step left out", "steps", (("        if averager.round % 2 == 1:\n            dist.broadcast(torch.zeros((), dtype=torch.int64), src=0, group=averager.group)\n", ""),), "FSD617", "fails"),
    Variant("every step in the hook", "steps", (("        if averager.round % 2 == 1:\n            dist.broadcast(torch", "        if True:\n            dist.broadcast(torch"),), "FSD617", "fails"),
    Variant("a collective that depends on local data", "server", (("        if flag.item() > 0:\n            dist.barrier(group=self.group)\n        return rows", "        if row.sum() > 4:\n            dist.barrier(group=self.group)\n        return rows"),), "FSD617", ""),
    Variant("what the others tell is turned round", "server", (("        if flag.item() > 0:\n            dist.barrier(group=server.group)", "        if flag.item() == 0:\n            dist.barrier(group=server.group)"),), "FSD617", "fails"),
    Variant("the told barrier is left out", "server", (("        if flag.item() > 0:\n            dist.barrier(group=server.group)\n", ""),), "FSD617", "fails"),
    Variant("post_hook without its argument", "meter", (("def post_hook(self, is_last_joiner):", "def post_hook(self):"), ("dist.get_rank(self.meter.group), is_last_joiner", "dist.get_rank(self.meter.group), True")), "FSD624", "fails"),
    Variant("main_hook with an argument", "scale", (("def main_hook(self):", "def main_hook(self, batch):"),), "FSD624", "fails"),
    Variant("post_hook on the last joiner only", "meter", (("        common = self.meter.common_rank(dist.get_rank(self.meter.group), is_last_joiner)\n        dist.broadcast(self.meter.total, src=common, group=self.meter.group)", "        if is_last_joiner:\n            dist.broadcast(self.meter.total, src=dist.get_rank(self.meter.group), group=self.meter.group)"),), "FSD619", ""),
    Variant("post_hook from rank 0", "meter", (("        common = self.meter.common_rank(dist.get_rank(self.meter.group), is_last_joiner)\n", ""), ("src=common", "src=0")), "FSD620", "wrong"),
    Variant("post_hook from itself", "meter", (("        common = self.meter.common_rank(dist.get_rank(self.meter.group), is_last_joiner)\n", "        common = dist.get_rank(self.meter.group)\n"),), "FSD620", ""),
    Variant("the smallest rank is agreed on", "meter", (("dist.all_reduce(candidate, op=dist.ReduceOp.MAX", "dist.all_reduce(candidate, op=dist.ReduceOp.MIN"),), "FSD620", "fails"),
    Variant("the sum of the ranks is agreed on", "meter", (("dist.all_reduce(candidate, op=dist.ReduceOp.MAX, group", "dist.all_reduce(candidate, group"),), "FSD620", ""),
    Variant("agreed on without is_last_joiner", "meter", (("dist.get_rank(self.meter.group), is_last_joiner", "dist.get_rank(self.meter.group), True"),), "FSD620", ""),
    Variant("the hook runs the iteration", "meter", ((_SHADOW + _LEAST, "        self.meter.add(0.0)\n"),), "FSD634", "fails"),
    Variant("empty memory in the hook", "meter", (("torch.zeros(1, device=self.meter.device)", "torch.empty(1, device=self.meter.device)"),), "FSD637", ""),
    Variant("ones in the hook", "meter", (("torch.zeros(1, device=self.meter.device)", "torch.ones(1, device=self.meter.device)"),), "FSD637", "wrong"),
    Variant("the total itself in the hook", "meter", (("torch.zeros(1, device=self.meter.device)", "self.meter.total"),), "FSD637", "wrong"),
    Variant("the list in another order than the loop", "pair", (("Join([model, counter])", "Join([counter, model])"),), "FSD631", "fails"),
    Variant("between forward and backward", "pair", (("            model(torch.full((1, 2), value)).sum().backward()\n            optimizer.step()\n            counter.count(1)\n", "            loss = model(torch.full((1, 2), value)).sum()\n            counter.count(1)\n            loss.backward()\n            optimizer.step()\n"),), "FSD632", "fails"),
    Variant("not given to Join", "pair", (("Join([model, counter])", "Join([model])"),), "FSD633", "fails"),
    Variant("a collective of the loop's own", "pair", (("            counter.count(1)\n", "            counter.count(1)\n            dist.all_reduce(torch.ones(1))\n"),), "FSD627", "fails"),
    Variant("a barrier after the loop, in the block", "pair", (("            counter.count(1)\n", "            counter.count(1)\n        dist.barrier()\n"),), "FSD627", "fails"),
    Variant("two groups", "pair", (("Counter(dist.group.WORLD)", "Counter(dist.new_group([0, 1]))"),), "FSD626", "fails"),
    Variant("SyncBatchNorm", "pair", (("DDP(torch.nn.Linear(2, 1))", "DDP(torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1))))"),), "FSD628", ""),
    Variant("enable=False with uneven data", "meter", (("    with Join([meter], sync=True):\n        for value in values:\n            meter.add(value)", "    with Join([meter], enable=False, sync=True):\n        for value in range(2 + rank):\n            meter.add(value)"),), "FSD630", "fails"),
    Variant("caught inside the block", "pair", (("    with Join([model, counter]):\n        for value in values:\n            optimizer.zero_grad()\n            model(torch.full((1, 2), value)).sum().backward()\n            optimizer.step()\n            counter.count(1)\n", "    with Join([model, counter], throw_on_early_termination=True):\n        for value in values:\n            try:\n                optimizer.zero_grad()\n                model(torch.full((1, 2), value)).sum().backward()\n                optimizer.step()\n                counter.count(1)\n            except RuntimeError:\n                break\n"),), "FSD629", "fails"),
)  # fmt: skip


def text(variant: Variant) -> str:
    """The program of a variant; every replacement must be found."""
    program = RIGHT[variant.base]
    for old, new in variant.changes:
        if old not in program:
            raise AssertionError(f"{variant.name}: {old!r} is not in the program")
        program = program.replace(old, new)
    return program
