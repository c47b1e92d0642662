"""Puts the runner in front of the program inside the command that a person types to train.

The runner is a folder with a `__main__.py` and its plan.  Python runs it as it would run a script, and what follows is
the program as it was typed: `python train.py --lr 1` becomes `python <folder> <plan> train.py --lr 1`, and
`torchrun --nproc-per-node 2 -m pkg.train` becomes `torchrun --nproc-per-node 2 <folder> <plan> -m pkg.train`.
Launchers that tell each rank its number by an argument (`deepspeed`, `torch.distributed.launch`) write
`--local-rank=N` right after their script, so before the plan: the runner hands it on to the program.

Every form that is not known is an error, because a program that runs without the runner would be trained in earnest.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

_PYTHON = re.compile(r"pythonw?(\d+(\.\d+)*t?)?(\.exe)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_EXAMPLE = "as in `gradlint confirm -- python train.py --lr 1`"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TORCH_MODULES = ("torch.distributed.run", "torch.distributed.launch")
# These start the program by means of their own, where the runner is not in front of it.
_TOOLS = _words(
    "cProfile coverage debugpy idlelib ipdb IPython ipykernel jupyter kernprof line_profiler memory_profiler notebook "
    "pdb profile pudb scalene timeit torch.utils.bottleneck trace viztracer"
)
_SHELLS = _words("bash sh zsh dash fish ksh csh tcsh")

# What these options of a launcher need is nothing; every other option takes a value.
_TORCHRUN = _words("--standalone -m --module --no-python --run-path --virtual-local-rank --use-env -h --help")
_ACCELERATE = _words(
    "-h --help -q --quiet --cpu --multi-gpu --tpu --use-mps-device --use-xpu --ipex --enable-cpu-affinity "
    "--dynamo-use-fullgraph --dynamo-use-dynamic --dynamo-use-regional-compilation --use-deepspeed --use-fsdp "
    "--use-parallelism-config --use-megatron-lm --same-network -m --module --no-python --tpu-cluster --no-tpu-cluster "
    "--tpu-use-sudo --downcast-bf16 --debug --fp8-use-autocast-during-eval"
)
_DEEPSPEED = _words(
    "-h --help --module --no-python --no-local-rank --no-ssh --no-ssh-check --force-multi --save-pid "
    "--bind-cores-to-rank -q --quiet"
)


class CommandError(ValueError):
    """A command that cannot be confirmed; the message says what to write instead."""


@dataclass(frozen=True)
class Launch:
    """What to start, and the whole environment to start it in."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]


class _Wrapper(NamedTuple):
    """A command that starts another one."""

    # Options whose value could be taken for the program: an environment may be called `python`.
    valued: Collection[str] = ()
    subcommands: Collection[str] = ()
    starts_ranks: bool = False
    # Starts `train.py` and `-m pkg.train` without the word `python` in front.
    runs_scripts: bool = False


_RUN = ("run",)
_CONDA = _Wrapper(("-n", "--name", "-p", "--prefix", "--cwd"), _RUN)
_WRAPPERS: Mapping[str, _Wrapper] = {
    "nice": _Wrapper(),
    "ionice": _Wrapper(),
    "chrt": _Wrapper(),
    "nohup": _Wrapper(),
    "stdbuf": _Wrapper(),
    "setarch": _Wrapper(),
    "numactl": _Wrapper(),
    "taskset": _Wrapper(),
    "timeout": _Wrapper(),
    "xvfb-run": _Wrapper(),
    "uv": _Wrapper(
        ("-p", "--python", "--with", "--with-editable", "--with-requirements", "--package", "--project", "--directory"),
        _RUN,
        runs_scripts=True,
    ),
    "poetry": _Wrapper(("-C", "--directory", "-P", "--project"), _RUN),
    "pdm": _Wrapper(("-p", "--project"), _RUN),
    "pipenv": _Wrapper((), _RUN),
    "rye": _Wrapper((), _RUN),
    "hatch": _Wrapper(("-e", "--env", "-p", "--project"), _RUN),
    "pixi": _Wrapper(("-e", "--environment", "--manifest-path"), _RUN),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "mpirun": _Wrapper(starts_ranks=True),
    "mpiexec": _Wrapper(starts_ranks=True),
    "horovodrun": _Wrapper(starts_ranks=True),
    "srun": _Wrapper(("-J", "--job-name", "-p", "--partition"), starts_ranks=True),
}


def substitute(
    command: Sequence[str],
    runner: Sequence[str],
    *,
    python: str | None = None,
    nproc: int | None = None,
    environment: Mapping[str, str],
) -> Launch:
    """The command with `runner` in front of its program.

    `python` is the interpreter that a person asked for, whatever the command names.  `nproc` starts that many ranks
    of a command that is no launcher itself.  `environment` is what the program would have seen; assignments in the
    command are added to it.
    """
    if nproc is not None and nproc < 1:
        raise CommandError(f"--nproc {nproc} starts nothing; write a number from 1")
    return _Substitution(deque(command), tuple(runner), python, nproc, dict(environment)).launch()


def interpreter(environment: Mapping[str, str]) -> str:
    """The Python of a command that names none: what a shell in this environment would run."""
    if venv := environment.get("VIRTUAL_ENV"):
        binary = Path(venv, "Scripts", "python.exe") if os.name == "nt" else Path(venv, "bin", "python")
        if binary.exists():
            return str(binary)
    path = environment.get("PATH")
    return shutil.which("python", path=path) or shutil.which("python3", path=path) or sys.executable


@dataclass
class _Substitution:
    rest: deque[str]
    runner: tuple[str, ...]
    python: str | None
    nproc: int | None
    environment: dict[str, str]
    out: list[str] = field(default_factory=list)
    # The command around the program that starts ranks by itself.
    around: str | None = None

    def launch(self) -> Launch:
        typed = tuple(self.rest)
        self._assignments()
        if not self.rest:
            raise CommandError(f"there is no program to run; write it after `--`, {_EXAMPLE}")
        word = self.rest[0]
        if len(self.rest) == 1 and " " in word.strip() and not Path(word).exists():
            raise CommandError(f"the command is one quoted word; write its words apart: `-- {word}`")
        if _is_script(word) or word == "-m":
            self._program([self.python or interpreter(self.environment)])
        else:
            while not self._word(typed):
                pass
        return Launch(tuple(self.out), self.environment)

    def _word(self, typed: Sequence[str]) -> bool:
        """Takes the next word with what belongs to it; true once the program has been found."""
        self._assignments()
        word = self._next(f"no Python program in `{shlex.join(typed)}`; write the program itself, {_EXAMPLE}")
        name = _name(word)
        if _PYTHON.fullmatch(name):
            self._python(word)
        elif name == "torchrun":
            self._launcher([self.python, "-m", _TORCH_MODULES[0]] if self.python else [word], _TORCHRUN, name)
        elif name in ("accelerate", "accelerate-launch"):
            self._accelerate(word, name)
        elif name == "deepspeed":
            module = "deepspeed.launcher.runner"
            self._launcher([self.python, "-m", module] if self.python else [word], _DEEPSPEED, name)
        elif name == "env":
            self._env()
            return False
        elif name == "time":
            # Its times would be those of the run under gradlint, and where there is no such file it is a shell's word.
            self._options(lambda option: option not in ("-o", "--output", "-f", "--format"))
            return False
        elif name in _WRAPPERS:
            return self._wrapper(word, _WRAPPERS[name], typed)
        else:
            _refuse(word, name, self.rest)
        return True

    def _next(self, missing: str) -> str:
        if not self.rest:
            raise CommandError(missing)
        return self.rest.popleft()

    def _assignments(self) -> None:
        while self.rest and _ASSIGNMENT.match(self.rest[0]):
            name, _, value = self.rest.popleft().partition("=")
            self.environment[name] = value

    def _env(self) -> None:
        while self.rest and self.rest[0].startswith("-"):
            option = self.rest.popleft()
            if option in ("-", "-i", "--ignore-environment"):
                self.environment.clear()
            elif option in ("-u", "--unset"):
                self.environment.pop(self._next("`env -u` names no variable"), None)
            elif option.startswith(("--unset=", "-u")):
                self.environment.pop(option.removeprefix("--unset=").removeprefix("-u"), None)
            elif option != "--":
                raise CommandError(f"`env {option}` cannot be confirmed; write `env NAME=value python train.py`")

    def _options(self, is_flag: Callable[[str], bool]) -> list[str]:
        """The options in front, with their values."""
        options: list[str] = []
        while self.rest and self.rest[0].startswith("-") and self.rest[0] != "-":
            option = self.rest.popleft()
            options.append(option)
            attached = "=" in option or (len(option) > 2 and not option.startswith("--"))
            # No launcher has an option that takes a Python file: what stands in front of one is a flag, known or not.
            if not attached and not is_flag(option) and self.rest and not _is_script(self.rest[0]):
                options.append(self.rest.popleft())
        return options

    def _wrapper(self, word: str, wrapper: _Wrapper, typed: Sequence[str]) -> bool:
        """Copies what stands before the program that the wrapper starts."""
        name = _name(word)
        if wrapper.starts_ranks:
            self.around = name
        self.out.append(word)
        seen = not wrapper.subcommands
        while self.rest:
            following = self.rest[0]
            if seen and wrapper.runs_scripts and (_is_script(following) or following in ("-m", "--module")):
                self._script_of_uv(following)
                return True
            if seen and _known(following):
                return False
            if not seen and not following.startswith("-"):
                if following not in wrapper.subcommands:
                    break
                seen = True
            self.out.append(self.rest.popleft())
            if following in wrapper.valued and self.rest:
                self.out.append(self.rest.popleft())
        raise CommandError(
            f"no Python program in `{shlex.join(typed)}`; write the program behind `{name}"
            f"{' run' if wrapper.subcommands else ''}`, as in `python train.py` or `torchrun train.py`"
        )

    def _script_of_uv(self, word: str) -> None:
        if _is_script(word) and _declares_dependencies(word):
            raise CommandError(
                f"uv gives {word} the packages that it asks for only where uv starts that file itself; write "
                f"`uv run --with-requirements {word} python {word}`"
            )
        if word == "--module":
            self.rest[0] = "-m"
        self._program([self.python or "python"])

    def _python(self, word: str) -> None:
        words = [self.python or word]
        while self.rest and self.rest[0].startswith("-"):
            option = self.rest.popleft()
            if option == "-":
                raise CommandError("a program on standard input cannot be confirmed; put the code in a file")
            if option.startswith("--"):
                if option != "--check-hash-based-pycs":
                    raise CommandError(f"`{word} {option}` runs no program; write one, {_EXAMPLE}")
                words += [option, self._next(f"`{option}` needs a value")]
                continue
            # One-letter options may stand together, and the last one may need a value: `-um pkg.train`.
            letters, valued, value = re.fullmatch(r"-([^cmWX]*)([cmWX]?)(.*)", option, re.DOTALL).groups()  # type: ignore[union-attr]
            if set(letters) & set("hV?"):
                raise CommandError(f"`{word} {option}` runs no program; write one, {_EXAMPLE}")
            if valued == "c":
                raise CommandError("`python -c` cannot be confirmed: findings are in files; put the code in a file")
            if valued == "m":
                if letters:
                    words.append(f"-{letters}")
                if value:
                    self.rest.appendleft(value)
                self._module(words)
                return
            words.append(option)
            if valued and not value:
                words.append(self._next(f"`{option}` needs a value"))
        self._program(words)

    def _module(self, words: list[str]) -> None:
        module = self._next(f"`-m` names no module; write one, {_EXAMPLE}")
        if module in _TORCH_MODULES:
            self._launcher([*words, "-m", module], _TORCHRUN, module)
        elif module == "accelerate.commands.launch":
            self._launcher([*words, "-m", module], _ACCELERATE, "accelerate launch")
        elif module == "deepspeed.launcher.runner":
            self._launcher([*words, "-m", module], _DEEPSPEED, "deepspeed")
        elif module in _TOOLS:
            raise CommandError(f"`-m {module}` starts the program by itself; write the program without it, {_EXAMPLE}")
        else:
            self.rest.extendleft((module, "-m"))
            self._program(words)

    def _program(self, python: list[str]) -> None:
        """Ends the command with the program, which starts at the next word."""
        if not self.rest:
            raise CommandError(f"`{' '.join(python)}` runs no program; write one, {_EXAMPLE}")
        if self.rest[0] == "-m":
            if len(self.rest) == 1:
                raise CommandError(f"`-m` names no module; write one, {_EXAMPLE}")
        elif self.rest[0].endswith((".ipynb", ".sh")):
            _refuse(self.rest[0], _name(self.rest[0]), ())
        if self.nproc is not None:
            self._no_nproc(self.around)
            python = [*python, "-m", _TORCH_MODULES[0], "--standalone", "--nproc-per-node", str(self.nproc)]
        self.out += [*python, *self.runner, *self.rest]

    def _accelerate(self, word: str, name: str) -> None:
        words = [word]
        if name == "accelerate":
            if not self.rest or self.rest[0] != "launch":
                raise CommandError("`accelerate` trains only as `accelerate launch train.py`")
            words.append(self.rest.popleft())
        if self.python:
            words = [self.python, "-m", "accelerate.commands.launch"]
        self._launcher(words, _ACCELERATE, "accelerate launch")

    def _launcher(self, words: list[str], flags: Collection[str], name: str) -> None:
        self._no_nproc(name)
        options = self._options(lambda option: _dashed(option) in flags)
        given = {_dashed(option) for option in options}
        for refused in ("--no-python", "--run-path", "--tpu"):
            if refused in given:
                raise CommandError(f"`{name} {refused}` cannot be confirmed; write `{name} train.py`")
        program = self._next(f"`{name}` names no program; write one, as in `{name} train.py`")
        if {"-m", "--module"} & given:
            options = [option for option in options if option not in ("-m", "--module")]
            self.rest.extendleft((program, "-m"))
        elif program.endswith((".ipynb", ".sh")):
            _refuse(program, _name(program), ())
        else:
            self.rest.appendleft(program)
        self.out += [*words, *options, *self.runner, *self.rest]

    def _no_nproc(self, launcher: str | None) -> None:
        if self.nproc is not None and launcher is not None:
            raise CommandError(
                f"`{launcher}` starts the ranks itself; leave out --nproc {self.nproc}, or write the plain program"
            )


def _name(word: str) -> str:
    return re.split(r"[/\\]", word)[-1].removesuffix(".exe")


def _dashed(option: str) -> str:
    """Launchers take `--no_python` for `--no-python`."""
    return option.replace("_", "-")


def _is_script(word: str) -> bool:
    return word.endswith((".py", ".pyw"))


def _known(word: str) -> bool:
    name = _name(word)
    return (
        _PYTHON.fullmatch(name) is not None
        or name in _WRAPPERS
        or name in ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "env", "time")
    )


def _declares_dependencies(script: str) -> bool:
    """Whether the file carries the packages that it needs, as PEP 723 has it."""
    try:
        return re.search(rb"^# /// script\s*$", Path(script).read_bytes(), re.MULTILINE) is not None
    except OSError:
        return False


def _refuse(word: str, name: str, rest: Collection[str]) -> NoReturn:
    if word.endswith(".ipynb") or name in ("jupyter", "papermill", "jupyter-nbconvert"):
        raise CommandError(
            "a notebook cannot be confirmed; write it as a script first: `jupyter nbconvert --to script train.ipynb`"
        )
    if name in _SHELLS or word.endswith((".sh", ".bash")):
        script = next((word for word in (word, *rest) if word.endswith((".sh", ".bash"))), word)
        raise CommandError(
            f"gradlint cannot see which program `{script}` starts; write the Python command of it, {_EXAMPLE}"
        )
    if name in ("lightning", "fabric"):
        raise CommandError(f"`{name}` starts the program by itself; write `python train.py` or `torchrun train.py`")
    if name in ("ipython", "coverage", "pytest"):
        program = "python -m pytest" if name == "pytest" else "python train.py"
        raise CommandError(f"`{name}` starts the program by itself; write `{program}`")
    if _is_script(word):
        raise CommandError(f"write the Python that runs `{word}` in front of it, as in `python {word}`")
    raise CommandError(
        f"gradlint does not know how `{word}` starts a Python program; write the program itself, {_EXAMPLE}"
    )
