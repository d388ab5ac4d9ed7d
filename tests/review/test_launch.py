"""Launch files: what the shell would start, held against bash itself, and what is right and wrong about it."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
import time
from pathlib import Path
from random import Random

import pytest

from shardguide.code.review.engine import review
from shardguide.code.review.launch import commands, shell
from shardguide.code.review.launch.words import UNKNOWN
from shardguide.knowledge import rule_store

ALL = frozenset(rule_store.codes())
HEAD = "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:8\n"
C10D = "--rdzv-backend=c10d --rdzv-endpoint=$HEAD:29400"


def look(tmp_path: Path, files: dict[str, str], release: str = "2.13") -> list[tuple[str, int, str, bool]]:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    result = review((str(tmp_path),), release, ALL)
    assert not result.problems
    return [(Path(one.path).name, one.line, one.code, one.certain) for one in result.findings]


def codes(tmp_path: Path, text: str, name: str = "run.sh", **more: str) -> list[str]:
    return [code for _, _, code, _ in look(tmp_path, {name: text, **more})]


SCRIPTS = {
    "plain": "torchrun --nnodes=1 train.py --lr 1e-4\n",
    "continued": "torchrun \\\n  --nnodes=1 \\\n  --nproc-per-node 8 \\\n  train.py\n",
    "quotes": 'torchrun --role \'a b\' --rdzv-conf "x=1,y=2" tr\'ai\'n.py "--text=it\'s" \'--json={"a": 1}\' "a\\"b\\$c"\n',
    "variables": 'N=8\nNODES=2\nARGS="--nproc-per-node $N"\ntorchrun --nnodes=$NODES $ARGS ${N}x.py "$ARGS"\n',
    "array": "ARGS=(\n  --nnodes 1  # why\n  --role 'x y'\n)\ntorchrun \"${ARGS[@]}\" train.py\n",
    "comments": "# torchrun no.py\ntorchrun a#b.py # --nnodes 3\n",
    "heredoc": "cat > /dev/null <<EOF\ntorchrun inside.py\nEOF\ntorchrun outside.py\n",
    "heredoc_tabs": "cat > /dev/null <<-'END'\n\ttorchrun inside.py\n\tEND\ntorchrun outside.py\n",
    "chain": "true && torchrun a.py; false || torchrun b.py | cat\n",
    "condition": "if true; then\n  torchrun a.py\nelse\n  true\nfi\n",
    "group": "( torchrun a.py )\n{ torchrun b.py; }\n",
    "redirect": "torchrun a.py > /dev/stdout 2>&1\ntorchrun b.py 2> /dev/null < /dev/null --x\n",
    "append": "A=x\nA+=y\nexport B=z\ntorchrun $B.py\n",
    "empty": 'E=\ntorchrun "$E" a.py\n',
    "escaped": "torchrun a\\ b.py \\$HOME\n",
    "case": "case x in\n  x) torchrun a.py ;;\nesac\n",
    "subst_after": "X=$(echo hi)\ntorchrun a.py\n",
    "herestring": "cat > /dev/null <<< 'torchrun no.py'\ntorchrun a.py\n",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_words_are_those_of_bash(tmp_path: Path, name: str) -> None:
    bash = shutil.which("bash")
    assert bash
    before = 'torchrun() { printf "%s\\0" "$@" >&9; printf "%s\\0" --- >&9; }\n'
    (tmp_path / "s.sh").write_text(before + SCRIPTS[name])
    subprocess.run(
        [bash, "-c", f"exec 9>{tmp_path}/out; source {tmp_path}/s.sh"], check=False, timeout=20, capture_output=True
    )
    expected: list[list[str]] = [[]]
    for word in (tmp_path / "out").read_text().split("\0")[:-1]:
        if word == "---":
            expected.append([])
        else:
            expected[-1].append(word)
    ours = [
        [word.text for word in command.words[1:]]
        for command in shell.read(SCRIPTS[name], "s.sh").commands
        if command.words[0].text == "torchrun"
    ]
    assert ours == expected[:-1] and ours


@pytest.mark.parametrize(
    "text, unknown",
    [
        ("torchrun --nnodes=${N:-2} a.py", "--nnodes=" + UNKNOWN),
        ("torchrun --nnodes=$(nproc) a.py", "--nnodes=" + UNKNOWN),
        ("torchrun --nnodes=`nproc` a.py", "--nnodes=" + UNKNOWN),
        ("N=${1:-8}\ntorchrun --nnodes=$N a.py", "--nnodes=" + UNKNOWN),
        ("if x; then N=1; else N=2; fi\ntorchrun --nnodes=$N a.py", "--nnodes=" + UNKNOWN),
        ("N=1\nread N\ntorchrun --nnodes=$N a.py", "--nnodes=" + UNKNOWN),
        ("N=1\nsource env.sh\ntorchrun --nnodes=$N a.py", "--nnodes=" + UNKNOWN),
        ("f() {\n  N=1\n}\ntorchrun --nnodes=$N a.py", "--nnodes=" + UNKNOWN),
        ("for N in 1 2; do torchrun --nnodes=$N a.py; done", "--nnodes=" + UNKNOWN),
    ],
)
def test_what_a_run_alone_tells_is_unknown(text: str, unknown: str) -> None:
    words = next(one.words for one in shell.read(text, "s").commands if one.words[0].text == "torchrun")
    assert words[1].text == unknown


def test_places() -> None:
    text = "set -e\nsrun -N 2 bash -c 'cd x\n  torchrun \\\n    --nnodes=2 a.py'\n"
    (found,) = commands.launches(shell.read(text, "s"), "s", commands.job(shell.read(text, "s")), "2.13")
    value = found.get("--nnodes")
    assert value is not None and (found.at.line, found.at.column, value.line, value.column) == (3, 3, 4, 14)
    assert found.srun is not None and found.srun["nodes"].text == "2"


@pytest.mark.parametrize(
    "text, expected",
    [
        # beginnings that argparse takes, and options that are not torchrun's
        ("torchrun --standalone --nproc-per=8 train.py", []),
        ("torchrun -r3 -t 3 --standalone train.py --own-option", []),
        ("torchrun --help", []),
        ("torchrun --standalone --no_such=1 train.py", ["FSD001"]),
        ("python3 -m torch.distributed.run --standalone --no_such=1 train.py", ["FSD001"]),
        ("torchrun $ARGS --no_such train.py", []),
        ("echo torchrun --no_such train.py", []),
        # a range, and words that only a run tells
        ("torchrun --nnodes=1:4 --nproc-per-node=gpu train.py", []),
        ("torchrun --nnodes=4:2 --rdzv-backend=c10d --rdzv-endpoint=h:1 train.py", ["FSD002"]),
        ("torchrun --standalone --nproc-per-node=cuda train.py", ["FSD002"]),
        ("torchrun --standalone --tee 5 train.py", ["FSD002"]),
        ("torchrun --standalone --tee 0:1,1:2 train.py", []),
        ("torchrun --nproc-per-node=$GPUS --nnodes=$N train.py", []),
        # several nodes
        (f"torchrun --nnodes=2 {C10D} train.py", []),
        ("torchrun --nnodes=2 --rdzv-backend=c10d train.py", ["FSD006"]),
        ("torchrun --nnodes=2 --rdzv-backend=etcd-v2 train.py", []),
        ("torchrun --nnodes=2 $MORE train.py", []),
        ("export PET_NODE_RANK=1\ntorchrun --nnodes=2 --master-addr=h train.py", []),
        ("torchrun --nnodes=2 --node-rank=0 --master-addr=127.0.0.1 train.py", ["FSD006"]),
        ("torchrun --nnodes=1 --rdzv-backend=c10d --rdzv-endpoint=localhost:0 train.py", []),
        # without effect
        (f"torchrun --nnodes=$N {C10D} --node-rank 0 train.py", []),
        ("torchrun --standalone --rdzv-endpoint=h:1 train.py", ["FSD008"]),
        # environment
        ("export NCCL_SOCKET_IFNAME=lo\ntorchrun --standalone train.py", []),
        ("# GPUs without NVLink hang here\nexport NCCL_P2P_DISABLE=1\ntorchrun --standalone train.py", []),
        ("NCCL_BLOCKING_WAIT=1 torchrun --standalone train.py", ["FSD040"]),
        # two jobs
        ("torchrun --master-port=1 a.py &\nwait\ntorchrun --master-port=1 b.py", []),
        ("torchrun --master-port=1 a.py &\ntorchrun --master-port=2 b.py &", []),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc-per-node=4 a.py", ["FSD012"]),
    ],
)
def test_torchrun(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert codes(tmp_path, text + "\n") == expected


@pytest.mark.parametrize(
    "text, expected",
    [
        (HEAD + f"srun torchrun --nnodes=2 --nproc-per-node=8 {C10D} train.py", []),
        (HEAD + f"srun torchrun --nproc-per-node=8 {C10D} train.py", ["FSD011"]),
        (HEAD + f"srun -N 4 torchrun --nnodes=4 --nproc-per-node=8 {C10D} train.py", []),
        (HEAD + f"srun $OPTIONS torchrun --nnodes=4 --nproc-per-node=8 {C10D} train.py", []),
        (HEAD + f"srun torchrun --nnodes=1:2 --nproc-per-node=8 {C10D} train.py", []),
        (HEAD + f"srun --gres=gpu:4 torchrun --nnodes=2 --nproc-per-node=4 {C10D} train.py", []),
        (HEAD + f"srun torchrun --nnodes=2 --nproc-per-node=4 {C10D} train.py", ["FSD012"]),
        (HEAD + f"srun torchrun --nnodes=2 --nproc-per-node=16 {C10D} train.py", ["FSD012"]),
        (HEAD + f"srun --ntasks-per-node=8 torchrun --nnodes=2 --nproc-per-node=8 {C10D} train.py", ["FSD010"]),
        (HEAD + f"srun --ntasks-per-node=8 torchrun --nnodes=16 --nproc-per-node=1 {C10D} train.py", []),
        (HEAD + f"torchrun --nnodes=2 --nproc-per-node=8 {C10D} train.py", ["FSD013"]),
        (HEAD + f"ssh b torchrun --nnodes=2 --nproc-per-node=8 {C10D} train.py", []),
        (
            HEAD + "srun torchrun --nnodes=2 --nproc-per-node=8 --node-rank=0 --master-addr=$H train.py",
            ["FSD009"],
        ),
        (
            HEAD
            + 'srun bash -c "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_PROCID --master-addr=$H t.py"',
            ["FSD009"],
        ),
        (
            HEAD
            + 'srun bash -c "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=\\$SLURM_PROCID --master-addr=$H t.py"',
            [],
        ),
        (
            HEAD
            + "srun bash -c 'torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_PROCID --master-addr=$H t.py'",
            [],
        ),
        # a line that is no directive is a comment; another shell's file is none of Slurm's
        (HEAD + "\n# more\n\n#SBATCH --time=1:00\nsrun hostname", []),
        (HEAD + "hostname\n##SBATCH --time=1:00\n", []),
    ],
)
def test_slurm(tmp_path: Path, text: str, expected: list[str]) -> None:
    assert codes(tmp_path, text + "\n", "job.sbatch") == expected


def test_a_node_rank_in_a_script_that_srun_starts_is_each_tasks_own(tmp_path: Path) -> None:
    text = "#!/bin/bash\ntorchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SLURM_NODEID --master-addr=$H t.py\n"
    assert codes(tmp_path, text) == []


YAML = """
    apiVersion: kubeflow.org/v1
    kind: PyTorchJob
    spec:
      pytorchReplicaSpecs:
        Worker:
          replicas: {replicas}
          template:
            spec:
              containers:
                - name: pytorch
                  image: x
                  env:
                    - name: NCCL_ASYNC_ERROR_HANDLING
                      value: "1"
                  resources:
                    limits:
                      nvidia.com/gpu: 4
                  command:
                    - torchrun
                    - --nnodes=2
                    - --nproc_per_node=8
                    - {option}
                  args: ["train.py", "--lr=1"]
    """


def test_kubernetes(tmp_path: Path) -> None:
    text = textwrap.dedent(YAML)
    assert look(tmp_path, {"job.yaml": text.format(replicas=4, option="--gpus=1")}) == [
        ("job.yaml", 15, "FSD040", True),
        ("job.yaml", 21, "FSD011", True),
        ("job.yaml", 22, "FSD012", True),
        ("job.yaml", 23, "FSD001", True),
    ]
    # operators set PET_ variables, so what is missing here is no mistake
    right = text.format(replicas=2, option="--max-restarts=0").replace("=8", "=4").replace("NCCL_A", "TORCH_NCCL_A")
    assert look(tmp_path, {"job.yaml": right}) == []


def test_commands_inside_other_yaml(tmp_path: Path) -> None:
    text = 'run: |\n  set -e\n  torchrun --gpus=${{ matrix.n }} --nope=1 \\\n    train.py\nother: [torchrun, "--nope", "train.py"]\n'
    assert [row[:3] for row in look(tmp_path, {"sky.yaml": text})] == [
        ("sky.yaml", 3, "FSD001"),
        ("sky.yaml", 3, "FSD001"),
        ("sky.yaml", 5, "FSD001"),
    ]


MESH = "from torch.distributed.device_mesh import init_device_mesh\n"


@pytest.mark.parametrize(
    "script, expected",
    [
        ('mesh = init_device_mesh("cuda", (4, 4))\n', [("FSD015", True)]),
        ('mesh = init_device_mesh("cuda", (2, 2))\n', [("FSD015", False)]),
        ('mesh = init_device_mesh("cuda", (2, 4))\n', []),
        ('SHAPE = (4, 4)\nmesh = init_device_mesh("cuda", mesh_shape=SHAPE)\n', [("FSD015", True)]),
        ('if x:\n    mesh = init_device_mesh("cuda", (4, 4))\n', [("FSD015", False)]),
        ('mesh = init_device_mesh("cuda", (n, 4))\n', []),
    ],
)
def test_mesh(tmp_path: Path, script: str, expected: list[tuple[str, bool]]) -> None:
    run = "cd src\ntorchrun --standalone --nproc-per-node=8 src/train.py\n"
    found = look(tmp_path, {"run.sh": run, "src/train.py": MESH + script})
    assert [(code, certain) for name, _, code, certain in found if name == "run.sh"] == expected


def test_torchtitan(tmp_path: Path) -> None:
    run = "torchrun --standalone --nproc-per-node=8 -m torchtitan.train --job.config_file=./job.toml {}\n"
    toml = "[model]\nname = 1\n[parallelism]\ntensor_parallel_degree = {}\ndata_parallel_shard_degree = {}\n"
    for tp, dp, more, lines in (
        (3, -1, "", [4]),
        (2, -1, "", []),
        (2, 2, "", [4]),
        (2, 4, "", []),
        (0, -1, "", [4]),
        (2, 2, "--parallelism.data_parallel_shard_degree=4", []),
        (2, 2, "$MORE", []),
    ):
        found = look(tmp_path, {"run.sh": run.format(more), "job.toml": toml.format(tp, dp)})
        assert [(line, code) for _, line, code, _ in found] == [(line, "FSD016") for line in lines], (tp, dp, more)


def test_accelerate_that_is_right(tmp_path: Path) -> None:
    text = """
        compute_environment: LOCAL_MACHINE
        distributed_type: {kind}
        num_machines: 2
        main_process_ip: 10.0.0.1
        num_processes: 16
        fsdp_config:
          fsdp_version: {version}
          fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
          fsdp_reshard_after_forward: {reshard}
        """
    for kind, version, reshard, expected in (
        ("FSDP", 2, "true", []),
        ("FSDP", 2, "'no'", []),
        ("FSDP", 1, "FULL_SHARD", []),
        ("FSDP", 1, "2", ["FSD020"]),
        ("FSDP", 2, "HYBRID_SHARD", ["FSD022"]),
        ("MULTI_GPU", 2, "HYBRID_SHARD", []),
    ):
        made = textwrap.dedent(text).format(kind=kind, version=version, reshard=reshard)
        assert codes(tmp_path, made, "a.yaml") == expected, (kind, version, reshard)


def test_accelerate_beside_its_job(tmp_path: Path) -> None:
    head = HEAD.replace("nodes=2", "nodes=1").replace("gpu:8", "gpu:4")
    config = "distributed_type: FSDP\nnum_processes: {}\nnum_machines: {}\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    for options, made, expected in (
        ("--num_processes 8", (4, 1), ["FSD012"]),
        ("--num_processes 4", (4, 1), []),
        ("--num_processes $N --config_file conf/a.yaml", (8, 1), []),
        ("--config_file conf/a.yaml", (8, 1), ["FSD012"]),
        ("--config_file conf/a.yaml --main_process_ip $IP --machine_rank 0", (8, 2), []),
        ("--num_machines 2 --num_processes 8", (4, 1), ["FSD033"]),
    ):
        found = look(
            tmp_path, {"a.sh": head + f"accelerate launch {options} t.py\n", "conf/a.yaml": config.format(*made)}
        )
        assert [code for _, _, code, _ in found] == expected, options


@pytest.mark.parametrize("code", ["FSD020", "FSD040"])
def test_fixes(tmp_path: Path, code: str) -> None:
    from shardguide.workflows.review import ReviewRequest, check
    from shardguide.workflows.review.fixes import applied

    rule = rule_store.get(code)
    path = tmp_path / rule.file
    path.write_text(rule.wrong)
    edits = [
        edit for one in check(ReviewRequest((str(path),), torch="2.13")).extra["findings"] for edit in one["edits"]
    ]
    after = applied(rule.wrong, edits, str(path))
    assert after.replace(f"  # {code}", "").replace("HYBRID_SHARD", "") == rule.right.replace("HYBRID_SHARD", "")
    path.write_text(after)
    assert [one.code for one in review((str(path),), "2.13", ALL).findings] == []


def test_switched_off_on_the_line_or_above(tmp_path: Path) -> None:
    wrong = "torchrun --nope train.py"
    assert codes(tmp_path, f"{wrong}  # shardguide: ignore[FSD001]\n") == []
    assert codes(tmp_path, f"{wrong}  # noqa: E501,FSD001 why\n") == []
    assert codes(tmp_path, f"# shardguide: ignore[FSD001]\n{wrong}\n") == []
    assert codes(tmp_path, f"# shardguide: ignore[FSD002]\n{wrong}\n") == ["FSD049", "FSD001"]
    assert codes(tmp_path, f"# shardguide: ignore[FSD999]\nset -e\n{wrong}\n") == ["FSD049", "FSD001"]


HOSTILE = {
    "double.sh": "#torchrun\nA=xxxxxxxxxx\n" + "A=$A$A$A$A\n" * 60 + "torchrun $A\n",
    "lists.sh": "#torchrun\nA=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 60 + 'torchrun "${A[@]}"\n',
    "quote.sh": "torchrun 'unclosed\n" * 3,
    "brace.sh": "torchrun " + "${" * 100_000,
    "paren.sh": "torchrun " + "$(" * 100_000,
    "tick.sh": "torchrun `\n" * 50_001,
    "nested.sh": "torchrun x; " + "bash -c '" * 2000 + "\n",
    "heredoc.sh": "torchrun a <<E\n" * 3000,
    "words.sh": "torchrun " + "a " * 100_000,
    "open.sh": "function torchrun " + "if while " * 20_000,
    "deep.yaml": "a: torchrun\nb: " + "[" * 40_000,
    "dash.yaml": "a: torchrun\nb:\n  " + "- " * 40_000,
    "laugh.yaml": "distributed_type: FSDP\nnum_processes: 1\na: &a [x, x]\n"
    + "".join(f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join([f'*{chr(97 + n)}'] * 9)}]\n" for n in range(9)),
    "tag.yaml": "distributed_type: !!python/object/apply:os.system ['touch made']\nnum_processes: 1\n",
    "bad.yaml": "torchrun: [\n",
    "number.yaml": "distributed_type: FSDP\nnum_processes: " + "9" * 5000 + "\nnum_machines: 3\n",
    "bad.toml": "[parallelism\n",
    "deep.toml": "[parallelism]\nx = " + "[" * 20_000,
    "null.sh": "torchrun \x00\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_bounded_and_the_rest_goes_on(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(HOSTILE[name])
    (tmp_path / "zz.sh").write_text("torchrun --nope train.py\n")
    start = time.process_time()
    result = review((str(tmp_path),), "2.13", ALL)
    assert time.process_time() - start < 6
    assert "FSD001" in [one.code for one in result.findings if one.path.endswith("zz.sh")]
    assert all(one.why for one in result.problems) and not (Path.cwd() / "made").exists()


def test_changed_at_random_nothing_but_a_clear_refusal(tmp_path: Path) -> None:
    random = Random(7)
    marks = [
        "'",
        '"',
        "$",
        "${",
        "}",
        "(",
        ")",
        "`",
        "\\",
        "\n",
        "<<E\n",
        "&",
        "|",
        ";",
        "#",
        "#SBATCH",
        "=",
        "+=",
        "if ",
        "fi",
        "é",
    ]
    seeds = [*SCRIPTS.values(), HEAD + f"srun bash -c 'torchrun --nnodes=2 {C10D} train.py'\n"]
    for number in range(300):
        text = random.choice(seeds)
        for _ in range(random.randint(1, 8)):
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice(marks) + text[at + random.choice([0, 0, 3]) :]
        (tmp_path / f"{number}.sh").write_text(text)
    result = review((str(tmp_path),), "2.13", ALL)
    assert all(one.why for one in result.problems)


def test_files_of_other_people_are_passed_over(tmp_path: Path) -> None:
    files = {
        "ci.yaml": "on: push\njobs: {}\n",
        "pyproject.toml": "[project]\nname = 'x'\n",
        "build.sh": "make all\n",
        "values.yaml": "a: &x 1\nb: *x\n",
    }
    assert look(tmp_path, files) == []
