"""A Joinable whose hook shadows one collective of two, and a loop: what ``join`` is shown in the tests of its record."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class CounterHook(JoinHook):
    def __init__(self, counter):
        self.counter = counter

    def main_hook(self):
        dist.all_reduce(torch.zeros(1), group=self.counter.process_group)

    def post_hook(self, is_last_joiner):
        pass


class Counter(Joinable):
    def __init__(self, device, process_group, helper):
        super().__init__()
        self.device = device
        self.process_group = process_group
        self.helper = helper

    def __call__(self):
        Join.notify_join_context(self)
        dist.all_reduce(torch.ones(1), group=self.process_group)
        dist.broadcast(torch.ones(1), src=0, group=self.process_group)

    def join_hook(self, **kwargs):
        return CounterHook(self)

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.process_group


class Other(Counter):
    def __call__(self):
        Join.notify_join_context(self)
        self.helper()


def train(batches, counter):
    with Join([counter]):
        for _ in batches:
            counter()
