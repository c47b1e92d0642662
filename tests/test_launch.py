"""What a person types to train, and what is started for it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from gradlint.record.launch import CommandError, interpreter, substitute

RUNNER = ("RUN", "PLAN")
TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 2 RUN PLAN"


def started(command: str, python: str | None = None, nproc: int | None = None) -> str:
    launch = substitute(shlex.split(command), RUNNER, python=python, nproc=nproc, environment={"PATH": ""})
    return shlex.join(launch.argv)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --lr 1 -m x", "python RUN PLAN train.py --lr 1 -m x"),
        ("python -u -X dev -Wignore train.py", "python -u -X dev -Wignore RUN PLAN train.py"),
        (
            "python -W ignore --check-hash-based-pycs never a.py",
            "python -W ignore --check-hash-based-pycs never RUN PLAN a.py",
        ),
        ("python3.11 -m pkg.train -c 1", "python3.11 RUN PLAN -m pkg.train -c 1"),
        ("/opt/x/bin/python3.13t -Bum pkg.train", "/opt/x/bin/python3.13t -Bu RUN PLAN -m pkg.train"),
        ("python -mpkg.train", "python RUN PLAN -m pkg.train"),
        ("python folder", "python RUN PLAN folder"),
        ("python -m pytest tests", "python RUN PLAN -m pytest tests"),
        ("torchrun train.py a b", "torchrun RUN PLAN train.py a b"),
        ("torchrun --nproc_per_node 2 train.py", "torchrun --nproc_per_node 2 RUN PLAN train.py"),
        (
            "torchrun --standalone -r 3 -t3 --nnodes=1 train.py",
            "torchrun --standalone -r 3 -t3 --nnodes=1 RUN PLAN train.py",
        ),
        ("torchrun --virtual-local-rank -m pkg.train -m a", "torchrun --virtual-local-rank RUN PLAN -m pkg.train -m a"),
        ("torchrun --module --nproc-per-node 2 pkg.train", "torchrun --nproc-per-node 2 RUN PLAN -m pkg.train"),
        ("torchrun --unheard-of train.py", "torchrun --unheard-of RUN PLAN train.py"),
        ("python -u -m torch.distributed.run -m pkg.a b", "python -u -m torch.distributed.run RUN PLAN -m pkg.a b"),
        (
            "python -m torch.distributed.launch --use_env --nproc_per_node 2 train.py",
            "python -m torch.distributed.launch --use_env --nproc_per_node 2 RUN PLAN train.py",
        ),
        (
            "accelerate launch --cpu --num_processes 2 train.py",
            "accelerate launch --cpu --num_processes 2 RUN PLAN train.py",
        ),
        ("accelerate launch --multi-gpu -m pkg.train a", "accelerate launch --multi-gpu RUN PLAN -m pkg.train a"),
        ("accelerate-launch --config_file c.yaml train.py", "accelerate-launch --config_file c.yaml RUN PLAN train.py"),
        ("python -m accelerate.commands.launch train.py", "python -m accelerate.commands.launch RUN PLAN train.py"),
        ("deepspeed --num_gpus 1 train.py --deepspeed", "deepspeed --num_gpus 1 RUN PLAN train.py --deepspeed"),
        ("deepspeed --no_ssh --module pkg.train", "deepspeed --no_ssh RUN PLAN -m pkg.train"),
        ("uv run train.py a", "uv run python RUN PLAN train.py a"),
        ("uv run -m pkg.train", "uv run python RUN PLAN -m pkg.train"),
        ("uv run -p python3.11 --with rich python -u a.py", "uv run -p python3.11 --with rich python -u RUN PLAN a.py"),
        ("uv --directory x run torchrun train.py", "uv --directory x run torchrun RUN PLAN train.py"),
        ("poetry run python train.py", "poetry run python RUN PLAN train.py"),
        ("conda run -n env python train.py", "conda run -n env python RUN PLAN train.py"),
        (
            "conda run -n python --no-capture-output python a.py",
            "conda run -n python --no-capture-output python RUN PLAN a.py",
        ),
        ("mpirun -n 2 -x A=1 python train.py", "mpirun -n 2 -x A=1 python RUN PLAN train.py"),
        ("srun -n 2 -p gpu --time 1:00 python train.py", "srun -n 2 -p gpu --time 1:00 python RUN PLAN train.py"),
        ("time -p nice -n 5 python train.py", "nice -n 5 python RUN PLAN train.py"),
        ("time -f %e python train.py", "python RUN PLAN train.py"),
        ("numactl -N 0 -m 0 taskset -c 0-3 torchrun a.py", "numactl -N 0 -m 0 taskset -c 0-3 torchrun RUN PLAN a.py"),
    ],
)
def test_the_runner_stands_before_the_program(command: str, expected: str) -> None:
    assert started(command) == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train.py --lr 1", "PY RUN PLAN train.py --lr 1"),
        ("-m pkg.train", "PY RUN PLAN -m pkg.train"),
        ("python3 -u train.py", "PY -u RUN PLAN train.py"),
        ("torchrun --nnodes 1 train.py", "PY -m torch.distributed.run --nnodes 1 RUN PLAN train.py"),
        ("accelerate launch --cpu train.py", "PY -m accelerate.commands.launch --cpu RUN PLAN train.py"),
        ("deepspeed train.py", "PY -m deepspeed.launcher.runner RUN PLAN train.py"),
        ("uv run train.py", "uv run PY RUN PLAN train.py"),
        ("nice python -m torch.distributed.run a.py", "nice PY -m torch.distributed.run RUN PLAN a.py"),
    ],
)
def test_a_python_that_is_asked_for_is_taken(command: str, expected: str) -> None:
    assert started(command, python="PY") == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("train.py a", f"PY {TORCHRUN} train.py a"),
        ("-m pkg.train", f"PY {TORCHRUN} -m pkg.train"),
        ("A=1 python -u train.py", f"PY -u {TORCHRUN} train.py"),
        ("uv run train.py", f"uv run PY {TORCHRUN} train.py"),
    ],
)
def test_ranks_of_a_plain_program(command: str, expected: str) -> None:
    assert started(command, python="PY", nproc=2) == expected


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "there is no program to run"),
        ("'python train.py --lr 1'", "write its words apart: `-- python train.py --lr 1`"),
        ("A=1", "there is no program to run"),
        ("python", "`python` runs no program"),
        ("python -V", "`python -V` runs no program"),
        ("python --version", "`python --version` runs no program"),
        ("python -", "put the code in a file"),
        ("python -c 1", "put the code in a file"),
        ("python -uc 1", "put the code in a file"),
        ("python -m", "`-m` names no module"),
        ("-m", "`-m` names no module"),
        ("python -W", "`-W` needs a value"),
        ("python -m pdb train.py", "write the program without it"),
        ("python train.ipynb", "jupyter nbconvert --to script"),
        ("train.ipynb", "jupyter nbconvert --to script"),
        ("torchrun train.ipynb", "jupyter nbconvert --to script"),
        ("jupyter run train.ipynb", "jupyter nbconvert --to script"),
        ("./train.sh --lr 1", "which program `./train.sh` starts"),
        ("bash scripts/train.sh", "which program `scripts/train.sh` starts"),
        ("sh -c 'python train.py'", "which program `sh` starts"),
        ("torchrun --no-python ./train", "write `torchrun train.py`"),
        ("torchrun --no_python ./train", "write `torchrun train.py`"),
        ("torchrun --nproc-per-node 2", "`torchrun` names no program"),
        ("accelerate config", "`accelerate launch train.py`"),
        ("accelerate launch --tpu train.py", "write `accelerate launch train.py`"),
        ("lightning run model train.py", "write `python train.py` or `torchrun train.py`"),
        ("coverage run train.py", "write `python train.py`"),
        ("pytest tests", "write `python -m pytest`"),
        ("uv pip install python", "write the program behind `uv run`"),
        ("conda activate x", "write the program behind `conda run`"),
        ("nice ./train", "no Python program in `nice ./train`"),
        ("make train", "does not know how `make` starts"),
        ("env -S python train.py", "write `env NAME=value python train.py`"),
        ("nice", "no Python program in `nice`"),
        ("env A=1", "no Python program in `env A=1`"),
    ],
)
def test_other_commands_say_what_to_write(command: str, message: str) -> None:
    with pytest.raises(CommandError) as raised:
        started(command)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "command", ["torchrun a.py", "mpirun -n 2 python a.py", "accelerate launch a.py", "deepspeed a.py"]
)
def test_a_launcher_has_its_own_ranks(command: str) -> None:
    with pytest.raises(CommandError, match="starts the ranks itself; leave out --nproc 2"):
        started(command, nproc=2)


def test_no_ranks_at_all() -> None:
    with pytest.raises(CommandError, match="from 1"):
        started("train.py", nproc=0)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("A=1 B='x y' python t.py", {"PATH": "p", "KEPT": "1", "A": "1", "B": "x y"}),
        ("env A=1 KEPT= python t.py", {"PATH": "p", "KEPT": "", "A": "1"}),
        ("A=1 nice env -u KEPT B=2 python t.py", {"PATH": "p", "A": "1", "B": "2"}),
        ("env -i --unset=A -- A=1 torchrun t.py", {"A": "1"}),
    ],
)
def test_assignments_go_to_the_environment(command: str, expected: dict[str, str]) -> None:
    given = {"PATH": "p", "KEPT": "1"}
    launch = substitute(shlex.split(command), RUNNER, environment=given)
    assert launch.environment == expected
    assert given == {"PATH": "p", "KEPT": "1"}
    assert "A=1" not in launch.argv


def test_a_script_that_asks_for_packages_needs_uv(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("# /// script\n# dependencies = ['torch']\n# ///\n")
    with pytest.raises(CommandError, match=r"uv run --with-requirements .*train\.py python"):
        started(f"uv run {script}")


def test_the_python_of_a_bare_script(tmp_path: Path) -> None:
    for name in ("venv/bin/python", "path/python3", "other/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(0o755)
    path = {"PATH": str(tmp_path / "path")}
    assert interpreter({**path, "VIRTUAL_ENV": str(tmp_path / "venv")}) == str(tmp_path / "venv" / "bin" / "python")
    assert interpreter({**path, "VIRTUAL_ENV": str(tmp_path / "gone")}) == str(tmp_path / "path" / "python3")
    assert interpreter({"PATH": f"{tmp_path / 'path'}{os.pathsep}{tmp_path / 'other'}"}) == str(
        tmp_path / "other" / "python"
    )
    assert interpreter({"PATH": str(tmp_path)}) == sys.executable


def test_a_folder_runs_as_a_script(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("import sys; print(sys.argv[1:])")
    launch = substitute(
        ["python", "-u", "-m", "a.b", "c"], (str(tmp_path), "plan"), python=sys.executable, environment={}
    )
    out = subprocess.run(launch.argv, env=dict(launch.environment), capture_output=True, text=True, check=True).stdout
    assert out == "['plan', '-m', 'a.b', 'c']\n"
