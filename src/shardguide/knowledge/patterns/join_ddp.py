# /// pattern
# id = "join-ddp"
# title = "DDP with uneven inputs: Join, and the optimizer kept in step"
# topics = ["join", "data-loading", "ddp"]
# follows = ["torch.distributed.algorithms.join.Join", "torch.nn.parallel.DistributedDataParallel.join"]
# departs = "The examples join the model alone. Then an optimizer with states (momentum, Adam) misses steps on the ranks that ran out, and from the next epoch on the copies of the model differ; here they make every step."
# form = "ddp"
# test = "test_join.py::test_ddp_with_join_equals_one_process_over_two_epochs"
# processes = 3
# ///
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class StepToo(Joinable):
    """Lets a rank that has no inputs left make the optimizer steps of the others, with the gradients of the others."""

    def __init__(self, model, optimizer):
        super().__init__()  # without it Join.notify_join_context fails
        self.model, self.optimizer, self.reduced = model, optimizer, []
        # DDP's own shadow of backward sends zeros and throws the result away: the hook keeps it. One hook per model,
        # registered before the first backward.
        model.register_comm_hook(self, reduce_and_keep)

    def join_hook(self, **kwargs):
        return StepTooHook(self)

    @property
    def join_device(self):
        return self.model.join_device

    @property
    def join_process_group(self):
        return self.model.join_process_group  # all members of one Join must name the same group


class StepTooHook(JoinHook):
    def __init__(self, owner):
        self.owner = owner

    def main_hook(self):  # once for each iteration that the others still make
        for parameter, gradient in self.owner.reduced:
            parameter.grad = gradient
        # Whatever the loop does between backward and step (clipping), and the scheduler after it, belongs in here too.
        self.owner.optimizer.step()


def reduce_and_keep(owner, bucket):
    if bucket.index() == 0:
        owner.reduced = []
    gradients = bucket.gradients()  # views of the buffer, which is reduced in place
    owner.reduced += [(parameter, gradients[index]) for index, parameter in enumerate(bucket.parameters())]
    return allreduce_hook(owner.join_process_group, bucket)  # the mean over the world, joined ranks counting zero


def train(model, step_too, optimizer, batches, loss_of):
    # Hooks run in this order on a rank that is done, as forward, backward and step do on the others.
    with Join([model, step_too]):
        for inputs, targets in batches:  # of any number on each rank
            optimizer.zero_grad()
            loss_of(model(inputs), targets).backward()
            optimizer.step()
    Join([model, step_too], enable=False)  # Join stays on after its block; an evaluation would still notify it
