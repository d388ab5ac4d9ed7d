"""Claims about initialisation and about the backends of a build, run on PyTorch 2.13: mostly what is refused, and how."""

import inspect
import os
import subprocess
import sys
from datetime import timedelta

import pytest

pytestmark = pytest.mark.torch

torch = pytest.importorskip("torch", reason="runs claims on a real PyTorch")
if not torch.__version__.startswith("2.13"):
    pytest.skip("the witnesses are written for PyTorch 2.13", allow_module_level=True)

import torch.distributed as dist  # noqa: E402
from tests.snippets import gloo  # noqa: E402
from tests.snippets.ports import free_port  # noqa: E402
from witness_answers import all_say, said  # noqa: E402


def set_up(rank):
    """One process that is not initialised; everything here is refused before it talks to anybody, or world size 1."""
    facts = {}
    init = dist.init_process_group
    full = dict(os.environ)
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
        facts[name] = said(init, "gloo")
        os.environ[name] = full[name]
    facts["tcp_port"] = said(init, "gloo", init_method="tcp://127.0.0.1", rank=0, world_size=1)
    facts["tcp_rank"] = said(init, "gloo", init_method="tcp://127.0.0.1:29999")
    facts["tcp_world"] = said(init, "gloo", init_method="tcp://127.0.0.1:29999", rank=0)
    facts["file_path"] = said(init, "gloo", init_method="file://", rank=0, world_size=1)
    facts["file_rank"] = said(init, "gloo", init_method="file:///tmp/never_made")
    facts["scheme"] = said(init, "gloo", init_method="http://127.0.0.1:1", rank=0, world_size=1)
    facts["url_twice"] = said(
        init, "gloo", init_method="tcp://127.0.0.1:29999?rank=0&world_size=1", rank=0, world_size=1
    )
    os.environ["MASTER_PORT"] = "70000"
    facts["port"] = said(init, "gloo")
    os.environ["MASTER_PORT"] = full["MASTER_PORT"]
    facts["own_address"] = own_address()
    store = dist.HashStore()
    facts["both"] = said(init, "gloo", init_method="env://", store=store, rank=0, world_size=1)
    facts["store_world"] = said(init, "gloo", store=store)
    facts["timeout"] = said(init, "gloo", timeout=30)
    facts["device_cpu"] = said(init, "gloo", device_id=torch.device("cpu", 0))
    facts["device_cuda"] = said(init, "gloo", device_id=torch.device("cuda", 0))
    facts["device_int"] = said(init, device_id=0)
    for name in ("nccl", "mpi", "xccl", "ucc"):
        facts[name] = said(init, name, store=store, rank=0, world_size=1)
    facts["before"] = (dist.is_initialized(), said(dist.get_rank), said(dist.get_backend))
    del os.environ["LOCAL_RANK"]
    facts["local_rank"] = (said(dist.get_node_local_rank), dist.get_node_local_rank(fallback_rank=3))
    os.environ["TORCHELASTIC_RUN_ID"] = "job"
    facts["elastic"] = (dist.is_torchelastic_launched(), os.environ.pop("TORCHELASTIC_RUN_ID"))
    facts["not_elastic"] = dist.is_torchelastic_launched()
    init("gloo", store=store, rank=0, world_size=1, group_name="mine", timeout=timedelta(seconds=9))
    ours = dist.new_group()
    facts["inherited"] = [
        group._get_backend(torch.device("cpu")).options._timeout for group in (dist.group.WORLD, ours)
    ]
    facts["group_name"] = dist.group.WORLD.group_name
    facts["excepthook"] = sys.excepthook.__name__
    dist.destroy_process_group()
    init("cpu:gloo", store=dist.HashStore(), rank=0, world_size=1)
    facts["paired"] = dist.get_backend_config()
    dist.destroy_process_group()
    levels = {}
    for level in ("OFF", "INFO", "DETAIL"):
        os.environ["TORCH_DISTRIBUTED_DEBUG"] = level
        dist.set_debug_level_from_env()
        levels[level] = dist.get_debug_level().name
    del os.environ["TORCH_DISTRIBUTED_DEBUG"]
    dist.set_debug_level_from_env()
    facts["debug"] = (levels, dist.get_debug_level().name)
    facts["init_barrier"] = dist.distributed_c10d._is_barrier_after_init()
    os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    init("gloo", store=dist.HashStore(), rank=0, world_size=1)
    facts["lazy"] = said(dist.all_reduce, torch.ones(1))
    return facts


def own_address():
    """Rank 0 with an address of its own: as torchrun's agent starts it, and as it is without an agent."""
    answers, second = [], timedelta(seconds=1)
    url = f"tcp://127.0.0.1:{free_port()}"  # nobody listens there
    answers.append(said(dist.init_process_group, "gloo", init_method=url, rank=0, world_size=1, timeout=second))
    flag = os.environ.pop("TORCHELASTIC_USE_AGENT_STORE")
    answers.append(said(dist.init_process_group, "gloo", init_method=url, rank=0, world_size=1))
    dist.destroy_process_group()
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = flag
    return answers


@pytest.fixture(scope="module")
def setting():
    return gloo.run(1, set_up)[0]


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_env_init_needs_its_four_variables(setting, name):
    assert all_say([setting[name]], "ValueError", f"environment variable {name} expected, but not set")


def test_tcp_url_needs_a_port(setting):
    assert all_say([setting["tcp_port"]], "ValueError", "port number missing")


def test_tcp_assigns_no_ranks(setting):
    assert all_say([setting["tcp_rank"]], "ValueError", "rank parameter missing")
    assert all_say([setting["tcp_world"]], "ValueError", "world size parameter missing")


def test_tcp_under_an_agent_finds_no_store(setting):
    under_agent, alone = setting["own_address"]
    assert "DistNetworkError" in under_agent and "timed out" in under_agent
    assert alone == ""


def test_file_url_needs_a_path(setting):
    assert all_say([setting["file_path"]], "ValueError", "path missing")


def test_file_assigns_no_ranks(setting):
    assert all_say([setting["file_rank"]], "ValueError", "rank parameter missing")


def test_other_schemes_have_no_handler(setting):
    assert all_say([setting["scheme"]], "RuntimeError", "No rendezvous handler for http")


def test_rank_in_url_and_call(setting):
    assert all_say([setting["url_twice"]], "AssertionError", "node-specific arguments")


def test_port_range(setting):
    assert all_say([setting["port"]], "ValueError", "70000")


def test_store_or_method(setting):
    assert all_say([setting["both"]], "AssertionError", "Cannot specify both")


def test_store_needs_world_size_and_rank(setting):
    assert all_say([setting["store_world"]], "AssertionError", "world_size must be positive")


def test_timeout_is_a_timedelta(setting):
    assert all_say([setting["timeout"]], "TypeError", "datetime.timedelta")


def test_device_id_must_be_an_accelerator(setting):
    assert all_say([setting["device_cpu"]], "ValueError", "must be an accelerator with an index")


def test_device_id_must_fit_the_build(setting):
    assert all_say([setting["device_cuda"]], "ValueError", "does not match the current compilation")


def test_integer_device_id_needs_an_accelerator_build(setting):
    assert all_say([setting["device_int"]], "ValueError", "no accelerator support is found")


def test_cpu_build_has_no_nccl(setting):
    assert not dist.is_nccl_available() and all_say([setting["nccl"]], "RuntimeError", "doesn't have NCCL built in")


def test_wheel_has_no_mpi(setting):
    assert not dist.is_mpi_available() and all_say([setting["mpi"]], "RuntimeError", "doesn't have MPI built in")


def test_cpu_build_has_no_xccl(setting):
    assert not dist.is_xccl_available() and all_say([setting["xccl"]], "RuntimeError", "doesn't have XCCL built in")


def test_wheel_has_no_ucc(setting):
    assert not dist.is_ucc_available() and "Unknown c10d backend type" in setting["ucc"]


def test_wheel_has_gloo():
    assert dist.is_gloo_available() and dist.is_backend_available("gloo") and not dist.is_backend_available("nccl")


def test_nothing_works_before_initialisation(setting):
    assert setting["before"][0] is False and all_say(setting["before"][1:], "ValueError", "init_process_group")


def test_node_local_rank_comes_from_the_launcher(setting):
    assert "LOCAL_RANK is not in the environment" in setting["local_rank"][0] and setting["local_rank"][1] == 3


def test_torchelastic_is_known_by_its_run_id(setting):
    assert setting["elastic"] == (True, "job") and setting["not_elastic"] is False


def test_group_name_is_ignored(setting):
    assert setting["group_name"] != "mine"


def test_new_group_does_not_inherit_the_timeout(setting):
    assert setting["inherited"] == [timedelta(seconds=9), timedelta(minutes=30)]


def test_nccl_options_are_not_in_cpu_builds():
    with pytest.raises(ImportError):
        from torch._C._distributed_c10d import ProcessGroupNCCL  # noqa: F401


def test_cpu_build_names_no_gpu():
    assert (torch.version.cuda, torch.version.hip, torch.version.xpu) == (None, None, None)


def test_tracebacks_get_the_rank(setting):
    assert setting["excepthook"] == "_distributed_excepthook"


def test_backend_for_one_device_type(setting):
    assert setting["paired"] == "cpu:gloo"


def test_debug_level_from_the_environment(setting):
    levels, default = setting["debug"]
    assert all(given == level for given, level in levels.items()) and default == "OFF"


def test_no_barrier_after_initialisation(setting):
    assert "TORCH_DIST_INIT_BARRIER" not in os.environ and setting["init_barrier"] == 0


def test_lazy_gloo_works(setting):
    assert setting["lazy"] == ""


def test_default_timeouts():
    assert dist.distributed_c10d.default_pg_timeout == timedelta(minutes=30)
    stub = inspect.getsourcefile(dist).replace("distributed/__init__.py", "_C/_distributed_c10d.pyi")
    with open(stub, encoding="utf-8") as text:  # noqa: PTH123
        assert "_DEFAULT_PG_NCCL_TIMEOUT: timedelta" in text.read()
    assert dist.distributed_c10d._get_default_timeout(dist.Backend.GLOO) == timedelta(minutes=30)


def test_backend_names_are_lowered():
    assert dist.Backend("GLOO") == "gloo" == dist.Backend.GLOO


def test_backend_pairs():
    config = dist.distributed_c10d.BackendConfig
    assert "Invalid device:backend pairing" in said(config, dist.Backend("cpu:gloo,cuda"))
    assert config(dist.Backend("cpu:gloo,cuda:nccl")).get_device_backend_map() == {"cpu": "gloo", "cuda": "nccl"}


def test_backend_pairs_name_a_device_once():
    assert "Duplicate device type" in said(dist.distributed_c10d.BackendConfig, dist.Backend("cpu:gloo,cpu:gloo"))


def test_default_backends():
    names = {device: dist.get_default_backend_for_device(device) for device in ("cpu", "cuda", "xpu", "mps")}
    assert names == {"cpu": "gloo", "cuda": "nccl", "xpu": "xccl", "mps": "gloo"}


def test_devices_of_the_backends():
    devices = dist.Backend.backend_capability
    assert devices["gloo"] == devices["mpi"] == devices["ucc"] == ["cpu", "cuda"]
    assert devices["nccl"] == ["cuda"] and devices["xccl"] == ["xpu"]


FILE_INIT = """
import os, sys, torch, torch.distributed as dist
def start(path):
    dist.init_process_group("gloo", init_method="file://" + path, rank=0, world_size=1)
    dist.barrier()
normal, hard = sys.argv[1:]
child = os.fork()
if not child:
    start(normal)
    sys.exit()  # a normal exit, without destroy_process_group
os.waitpid(child, 0)
child = os.fork()
if not child:
    start(hard)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_file_is_removed_at_a_normal_exit_only(tmp_path):
    normal, hard = tmp_path / "normal", tmp_path / "hard"
    subprocess.run([sys.executable, "-c", FILE_INIT, str(normal), str(hard)], check=True)
    assert not normal.exists()
    assert hard.exists() and hard.stat().st_size > 0


# A store's end writes to the file twice: that a rank has ended, and that one fewer uses it; the rank that reads all of the one and
# none of the other removes the file. The child is led from system call to system call (ptrace) until it has written the first and
# let go of the lock; then the other rank ends, and the child goes on.
LEAVE_TOGETHER = """
import ctypes, fcntl, os, signal, sys, torch.distributed as dist
TRACEME, SYSCALL, DETACH = 0, 24, 17
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
path, together = sys.argv[1], sys.argv[2] == "together"
other = dist.FileStore(path, 2)
child = os.fork()
if child == 0:
    store = dist.FileStore(path, 2)
    if ptrace(TRACEME, 0, None, None):
        os._exit(77)
    os.kill(os.getpid(), signal.SIGSTOP)
    del store
    os._exit(0)
if os.WIFEXITED(os.waitpid(child, 0)[1]):
    sys.exit(77)
size = os.path.getsize(path)
with open(path) as file:
    while together:
        assert ptrace(SYSCALL, child, None, None) == 0 and os.WIFSTOPPED(os.waitpid(child, 0)[1])
        if os.path.getsize(path) > size:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            fcntl.flock(file, fcntl.LOCK_UN)
            break
if together:
    del other
assert ptrace(DETACH, child, None, None) == 0 and os.waitpid(child, 0)[1] == 0
if not together:
    del other
print(os.path.exists(path))
"""


def ended(path, ends):
    """Status, errors and output of the program above."""
    done = subprocess.run([sys.executable, "-c", LEAVE_TOGETHER, str(path), ends], capture_output=True, text=True)
    return done.returncode, done.stderr, done.stdout.strip()


@pytest.fixture
def led(tmp_path):
    """Skips where the system forbids a process to lead its child."""
    if sys.platform != "linux" or ended(tmp_path / "trial", "in turn")[0] == 77:
        pytest.skip("the ranks are led by ptrace, which this system does not have or forbids")


@pytest.mark.parametrize(("ends", "stays"), [("together", "True"), ("in turn", "False")])
def test_file_can_stay_when_ranks_leave_at_the_same_moment(led, tmp_path, ends, stays):
    assert ended(tmp_path / "store", ends) == (0, "", stays)
