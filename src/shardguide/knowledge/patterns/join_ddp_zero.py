# /// pattern
# id = "join-ddp-zero"
# title = "DDP and ZeroRedundancyOptimizer in one Join"
# topics = ["join", "zero-redundancy-optimizer"]
# follows = ["torch.distributed.algorithms.join.Join", "https://docs.pytorch.org/tutorials/advanced/generic_join.html"]
# departs = "The docstring's Join([model, optim]) imports classes as if they were modules, and it trains wrongly: a rank that ran out updates its share of the parameters with its own last gradients. ZeroRedundancyOptimizer.join_hook says that gradients must be set before; here a member between the two sets them."
# form = "ddp"
# test = "test_join.py::test_ddp_and_zero_in_one_join_equal_one_process_over_two_epochs"
# processes = 3
# ///
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class SetGradients(Joinable):
    """Gives a rank that has no inputs left the gradients which the others have just averaged."""

    def __init__(self, model):
        super().__init__()  # without it Join.notify_join_context fails
        self.model, self.reduced = model, []
        # DDP's own shadow of backward sends zeros and throws the result away: the hook keeps it. One hook per model,
        # registered before the first backward.
        model.register_comm_hook(self, reduce_and_keep)

    def join_hook(self, **kwargs):
        return SetGradientsHook(self)

    @property
    def join_device(self):
        return self.model.join_device

    @property
    def join_process_group(self):
        return self.model.join_process_group  # all members of one Join must name the same group


class SetGradientsHook(JoinHook):
    def __init__(self, owner):
        self.owner = owner

    def main_hook(self):  # once for each iteration that the others still make; no collective of its own
        for parameter, gradient in self.owner.reduced:
            parameter.grad = gradient
        # Whatever the loop does to gradients between backward and step (clipping) belongs in here too.


def reduce_and_keep(owner, bucket):
    if bucket.index() == 0:
        owner.reduced = []
    gradients = bucket.gradients()  # views of the buffer, which is reduced in place
    owner.reduced += [(parameter, gradients[index]) for index, parameter in enumerate(bucket.parameters())]
    return allreduce_hook(owner.join_process_group, bucket)  # the mean over the world, joined ranks counting zero


def train(model, set_gradients, optimizer, batches, loss_of):
    """``optimizer``: a ZeroRedundancyOptimizer over ``model.parameters()``; ``batches``: of any number on each rank."""
    # The order of one iteration: DDP's reduction, then the gradients, then ZeRO's step, which updates this rank's share
    # and broadcasts it. A rank that is done goes on with its share, or the others would wait for its broadcast.
    with Join([model, set_gradients, optimizer]):
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
    # Join stays on after its block; an evaluation would still notify it.
    Join([model, set_gradients, optimizer], enable=False)
