"""Programs that fail, hang, hide and write are run within their bounds, and nothing of them stays."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gradlint.record import guard, sandbox, supervise
from gradlint.record.launch import Launch
from gradlint.record.sandbox import Containment, Sandbox
from gradlint.record.supervise import Ended, NotStarted

pytestmark = pytest.mark.skipif(os.name != "posix", reason="programs are run under POSIX systems only")
needs_proc = pytest.mark.skipif(not guard.has_proc(), reason="this system does not list processes in /proc")

ROOT = Path(__file__).parents[1]
LEASH = ROOT / "gradlint" / "record" / "child"


@dataclass
class Running:
    """Runs programs in a project of their own, and knows which processes are theirs."""

    project: Path
    temporary: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def environment(self) -> dict[str, str]:
        home = str(self.project.parent / "home")
        return {"PATH": os.environ["PATH"], "HOME": home, "MARK": self.mark, "TMPDIR": str(self.temporary)}

    def __call__(
        self,
        code: str,
        *,
        timeout: float = 20,
        max_memory: int | None = None,
        sandbox: Sandbox = Sandbox.OFF,
        writable: tuple[Path, ...] = (),
        finished: Callable[[], bool] = lambda: False,
        linger: float = 30,
        on_output: Callable[[str], object] | None = None,
    ) -> Ended:
        (self.project / "program.py").write_text(code)
        launch = Launch((sys.executable, "program.py"), self.environment)
        ended = supervise.run(
            launch,
            cwd=self.project,
            timeout=timeout,
            max_memory=max_memory,
            sandbox=sandbox,
            writable=writable,
            finished=finished,
            linger=linger,
            on_output=on_output,
        )
        assert self.left() == []
        assert list(self.temporary.iterdir()) == []
        return ended

    def left(self) -> list[str]:
        """What still runs, by its command."""
        found = []
        for entry in Path("/proc").glob("[0-9]*") if guard.has_proc() else ():
            try:
                if f"MARK={self.mark}\0".encode() in (entry / "environ").read_bytes():
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
            except OSError:
                continue
        return [command for command in found if command]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Running:
    for name in ("project", "home", "tmp"):
        (tmp_path / name).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return Running(tmp_path / "project", tmp_path / "tmp")


def test_a_program_that_ends_well(running: Running) -> None:
    heard: list[str] = []
    ended = running(
        "import sys, time\nprint('one', flush=True); print('two ä', file=sys.stderr)\n"
        "time.sleep(.5); print(repr(sys.stdin.read()))",
        on_output=heard.append,
    )
    assert (ended.returncode, ended.why, ended.sentence) == (0, "exit", "exited with 0")
    assert ended.tail == "".join(heard) == "one\ntwo ä\n''\n"
    assert 0.5 <= ended.seconds < 15
    assert ended.containment == Containment()
    assert ended.notes == ("the program's writes are not contained here",)


def test_only_the_end_of_much_output_is_kept(running: Running) -> None:
    heard: list[str] = []
    ended = running("for i in range(40_000): print(i)", on_output=heard.append)
    assert "".join(heard) == "".join(f"{i}\n" for i in range(40_000))
    assert len(ended.tail) == supervise.TAIL
    assert ended.tail.endswith("39999\n")


OF_RANKS = """
import sys
sys.exit('''[rank1]: Traceback (most recent call last):
[rank1]:   File "train.py", line 3, in <module>
[rank1]: ValueError: of a rank
Traceback (most recent call last):
  File "torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=====''')
"""
OF_A_CRASH = """
import sys
sys.exit('''
traceback : Signal 15 (SIGTERM) received by PID 7
traceback : Signal 11 (SIGSEGV) received by PID 8
=====''')
"""


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import sys; sys.exit(3)", "exited with 3"),
        ("import sys; print('a\\n'); sys.exit('no data')", "exited with 1: no data"),
        (
            "try:\n 1/0\nexcept Exception as e:\n raise ValueError('two\\nlines') from e",
            "exited with 1: ValueError: two",
        ),
        ("def f(:", "exited with 1: SyntaxError: invalid syntax"),
        (OF_RANKS, "exited with 1: ValueError: of a rank"),
        (OF_A_CRASH, "exited with 1: a rank was killed by SIGSEGV"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "was killed by SIGSEGV"),
        (
            "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
            "was killed by SIGKILL, perhaps for want of memory",
        ),
    ],
)
def test_why_a_program_failed(running: Running, code: str, sentence: str) -> None:
    ended = running(code)
    assert ended.sentence.startswith(sentence)
    assert ended.why == ("signal" if ended.returncode < 0 else "exit")


def test_a_crash_shows_where(running: Running) -> None:
    ended = running("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)")
    assert "Segmentation fault" in ended.tail
    assert 'program.py", line 2' in ended.tail


def test_a_program_that_is_not_there(running: Running) -> None:
    with pytest.raises(NotStarted, match="No such file"):
        supervise.run(Launch(("./gone",), running.environment), cwd=running.project, timeout=9)
    assert list(running.temporary.iterdir()) == []


def test_a_program_that_does_not_end(running: Running) -> None:
    ended = running("import time\nprint('on', flush=True)\ntime.sleep(60)", timeout=1)
    assert (ended.why, ended.sentence) == ("timeout", "took more than 1 s and was ended")
    assert ended.returncode == -signal.SIGTERM
    assert ended.tail == "on\n"


def test_a_program_that_does_not_want_to_end(running: Running) -> None:
    stubborn = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nos.fork()\ntime.sleep(60)"
    ended = running(stubborn, timeout=1)
    assert (ended.why, ended.returncode) == ("timeout", -signal.SIGKILL)
    assert ended.seconds < 1 + guard.GRACE + 5


def test_ranks_that_wait_for_one_that_is_done(running: Running) -> None:
    began = time.monotonic()
    ended = running("import time; time.sleep(60)", finished=lambda: time.monotonic() - began > 0.5, linger=0.5)
    assert (ended.why, ended.sentence) == ("finished", "was ended after a rank of it was done")
    assert ended.seconds < 15


@needs_proc
def test_too_much_memory(running: Running) -> None:
    ended = running("import time\nx = bytearray(300_000_000)\ntime.sleep(60)", max_memory=200_000_000)
    assert (ended.why, ended.sentence) == ("memory", "used more than 0.2 GB and was ended")
    assert ended.peak_memory is not None
    assert 200_000_000 < ended.peak_memory < 400_000_000


@needs_proc
def test_memory_that_workers_share_counts_once(running: Running) -> None:
    ended = running(
        "import os, time\nx = bytearray(100_000_000)\nfor _ in range(3):\n if not os.fork(): break\ntime.sleep(1)",
        max_memory=250_000_000,
    )
    assert ended.why == "exit"
    assert ended.peak_memory is not None
    assert 90_000_000 < ended.peak_memory < 200_000_000


def test_a_limit_of_memory_that_nobody_watches(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gradlint.record.guard.has_proc", lambda: False)
    assert "the limit of memory is not enforced on this system" in running("", max_memory=1).notes


@needs_proc
@pytest.mark.parametrize("environment", ["None", "{}"])
def test_children_in_sessions_of_their_own(running: Running, environment: str) -> None:
    # The second one cannot be told by its environment.
    ended = running(
        "import subprocess, sys, time\n"
        "code = '''import os, time; os.fork() and os._exit(0); os.setsid()\n"
        "print(os.getpid(), flush=True); time.sleep(60)'''\n"
        f"subprocess.Popen([sys.executable, '-c', code], start_new_session=True, env={environment}).wait()\n"
        "time.sleep(.5)"
    )
    assert ended.why == "exit"
    assert not Path(f"/proc/{int(ended.tail)}").exists()


@needs_proc
def test_a_guard_that_is_killed(running: Running) -> None:
    # The second process is beyond the guard's own reach, and is held by the leash.
    held = f"import sys, time; sys.path.insert(0, {str(LEASH)!r}); import leash; leash.hold(); time.sleep(60)"
    ended = running(
        "import os, signal, subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, '-c', {held!r}], start_new_session=True)\n"
        "time.sleep(.5)\nos.kill(os.getppid(), signal.SIGKILL)\ntime.sleep(60)"
    )
    assert ended.why == "signal"
    assert ended.seconds < 15


@pytest.mark.parametrize("by_thread", [False, True])
def test_the_leash_ends_whoever_holds_it(tmp_path: Path, by_thread: bool) -> None:
    fifo = tmp_path / "leash"
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)
    code = (
        f"import os, sys, time; sys.path.insert(0, {str(LEASH)!r}); import leash\n"
        f"if {by_thread}: sys.platform = 'darwin'\n"
        "leash.hold(); os.fork(); print('held', flush=True); time.sleep(60)"
    )
    environment = {"GRADLINT_LEASH": str(fifo)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() + process.stdout.readline() == b"held\nheld\n"
        assert process.poll() is None
        os.close(writer)
        # Both ends of the pipe close when the child is gone as well.
        assert process.stdout.read() == b""
    assert process.returncode == -signal.SIGKILL
    # One who comes too late is told as well.
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == -signal.SIGKILL
    fifo.unlink()
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == -signal.SIGKILL


SUPERVISOR = """
import os, sys
from pathlib import Path
from gradlint.record import supervise
from gradlint.record.launch import Launch
ended = supervise.run(
    Launch((sys.executable, "program.py"), dict(os.environ)), cwd=Path.cwd(), timeout=60, on_output=sys.stdout.write
)
print(ended.containment.kind, ended.sentence, *ended.containment.layered)
"""
TREE = """
import os, subprocess, sys, time
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
os.fork() and os.write(1, b"up\\n")
time.sleep(60)
"""


def supervisor(running: Running) -> subprocess.Popen[bytes]:
    environment = {**running.environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-u", "-c", SUPERVISOR]
    return subprocess.Popen(command, cwd=running.project, env=environment, stdout=subprocess.PIPE)


def wait_until(holds: Callable[[], bool], seconds: float = 15) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not holds():
        time.sleep(0.05)
    return holds()


@needs_proc
def test_killed_at_any_moment_it_leaves_nothing(running: Running) -> None:
    (running.project / "program.py").write_text(TREE)
    moments = random.Random(3)  # noqa: S311
    killed = []
    for _ in range(6):
        killed.append(supervisor(running))
        time.sleep(moments.uniform(0, 0.7))
        killed[-1].kill()
    for process in killed:
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: not running.left()), running.left()


@needs_proc
@pytest.mark.parametrize(("number", "returned"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, -signal.SIGINT)])
def test_stopped_in_full_run_it_leaves_nothing(running: Running, number: int, returned: int) -> None:
    (running.project / "program.py").write_text(TREE)
    with supervisor(running) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert len(running.left()) > 4
        process.send_signal(number)
        process.communicate()
    assert process.returncode == returned
    if number == signal.SIGKILL:
        assert wait_until(lambda: not running.left()), running.left()
        assert wait_until(lambda: not list(running.temporary.iterdir()))
    assert running.left() == []
    assert list(running.temporary.iterdir()) == []


def test_the_environment_of_a_program(tmp_path: Path) -> None:
    given = {
        "CUDA_VISIBLE_DEVICES": "1",
        "OMP_NUM_THREADS": "3",
        "WANDB_MODE": "online",
        "MLFLOW_TRACKING_URI": "https://example.org",
        "MLFLOW_RUN_ID": "7",
        "TORCH_DISTRIBUTED_DEBUG": "detail",
    }
    own = supervise.environment(given, tmp_path, "token")
    assert (own["CUDA_VISIBLE_DEVICES"], own["OMP_NUM_THREADS"], own["WANDB_MODE"]) == ("1", "3", "disabled")
    assert own["MLFLOW_TRACKING_URI"].startswith("file:///")
    assert own["TMPDIR"] == str(tmp_path / "tmp")
    assert not {"MLFLOW_RUN_ID", "TORCH_DISTRIBUTED_DEBUG"} & own.keys()
    assert supervise.environment({"TORCH_DISTRIBUTED_DEBUG": "INFO"}, tmp_path, "")["TORCH_DISTRIBUTED_DEBUG"] == "INFO"


WRITES = """
import os, shutil, sys, tempfile
os.makedirs("runs/1"); open("runs/1/log", "w").write("new")
open("data.txt", "a").write("more"); assert open("data.txt").read() == "datamore"
os.remove("gone.txt"); assert not os.path.exists("gone.txt")
shutil.rmtree("old"); os.mkdir("old"); assert os.listdir("old") == []
shutil.move("kept", "moved"); assert os.listdir("moved") == ["a.txt"]
assert sorted(os.listdir(".")) == ["data.txt", "moved", "old", "program.py", "runs"]
open(os.path.expanduser("~/.config"), "w").close()
open(os.path.expanduser("~/.cache/model"), "w").write("model")
"""
PLACES = """
import multiprocessing, os, sys, tempfile
open(os.path.join(sys.argv[1] if sys.argv[1:] else {results!r}, "result.json"), "w").write("result")
tempfile.NamedTemporaryFile().write(b"x")
open(os.devnull, "w").write("x"); open("/proc/self/comm", "w").write("x")
multiprocessing.Lock(); queue = multiprocessing.SimpleQueue(); queue.put(1)
assert os.getcwd() == {project!r} and os.path.exists("program.py")
"""


def prepare(running: Running) -> dict[str, str]:
    """A project, and all of its files and those of the home, with what is in them."""
    home = running.project.parent / "home"
    for path in ("data.txt", "gone.txt", "old/a.txt", "kept/a.txt"):
        (running.project / path).parent.mkdir(exist_ok=True)
        (running.project / path).write_text("data")
    (running.project / "old").chmod(0o750)
    (home / ".cache").mkdir()
    return content(running)


def content(running: Running) -> dict[str, str]:
    files = [*running.project.rglob("*"), *(running.project.parent / "home").rglob("*")]
    return {str(path): path.read_text() for path in files if path.is_file() and path.name != "program.py"}


def test_writes_go_to_a_layer(running: Running) -> None:
    before = prepare(running)
    results = running.project / "results"
    ended = running("", sandbox=Sandbox.AUTO)
    if not ended.containment.layered:
        pytest.skip(f"this system allows no layers: {ended.containment.sentence}")
    ended = running(WRITES, sandbox=Sandbox.AUTO)
    assert ended.sentence == "exited with 0", ended.tail
    cache = running.project.parent / "home" / ".cache"
    assert content(running) == before | {str(cache / "model"): "model"}
    assert "is dropped" in ended.containment.sentence
    assert ended.containment.sentence.endswith(f"{cache} can be written")
    results.mkdir()
    places = PLACES.format(results=str(results), project=str(running.project))
    ended = running(places, sandbox=Sandbox.AUTO, writable=(results,))
    assert ended.sentence == "exited with 0", ended.tail
    assert (results / "result.json").read_text() == "result"


def test_a_layer_around_the_folder_of_the_layers(running: Running) -> None:
    inside = running.project / "tmp"
    inside.mkdir()
    inner = Running(running.project, inside)
    before = prepare(running)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("tempfile.tempdir", str(inside))
        ended = inner("import os\nopen('new', 'w')\nopen(os.environ['TMPDIR'] + '/x', 'w')", sandbox=Sandbox.AUTO)
    if not ended.containment.layered:
        pytest.skip(f"this system allows no layers: {ended.containment.sentence}")
    assert ended.sentence == "exited with 0", ended.tail
    assert content(running) == before


CONFINED = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from gradlint.record import sandbox
sandbox.enter((), Path(sys.argv[1]), [Path(sys.argv[2])])
"""


def lands(running: Running) -> bool:
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, running.temporary, running.project], check=False, capture_output=True
    )
    return done.returncode == 0


def test_without_layers_writes_are_refused(running: Running) -> None:
    if not lands(running):
        pytest.skip("this kernel has no Landlock")
    before = prepare(running)
    elsewhere = running.project.parent / "results"
    elsewhere.mkdir()
    # Who is confined cannot mount anything, so that this supervisor is left with the second means.
    (running.project / "program.py").write_text(
        PLACES.format(results=str(elsewhere), project=str(running.project)) + "open('data.txt', 'w')"
    )
    code = SUPERVISOR.replace("timeout=60", f"timeout=60, writable=[Path({str(elsewhere)!r})]")
    done = subprocess.run(
        [sys.executable, "-c", CONFINED + code, running.temporary, running.project.parent],
        cwd=running.project,
        env=running.environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert "landlock exited with 1: PermissionError: [Errno 13] Permission denied: 'data.txt'" in done.stdout
    assert "(the sandbox refuses writes there; --sandbox off lets them be)" in done.stdout
    assert (elsewhere / "result.json").read_text() == "result"
    assert content(running) == before
    assert running.left() == []


def test_what_is_mounted_in_a_project_is_seen_and_kept(running: Running) -> None:
    mounting = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    if not shutil.which("unshare") or subprocess.run([*mounting, "mount -t tmpfs t /mnt"], check=False).returncode:
        pytest.skip("this system lets a test mount nothing")
    data = running.project / "data, of: 1"
    data.mkdir()
    (running.project / "file").touch()
    (running.project / "program.py").write_text(
        "print(open('data, of: 1/a').read(), open('file').read())\n"
        "open('data, of: 1/b', 'w').write('b')\n"
        "try: open('file', 'w').write('c')\n"
        "except OSError as error: print(error.strerror)\n"
    )
    script = 'mount -t tmpfs t "$1"; echo a > "$1/a"; mount --bind "$1/a" file; "$2" -c "$3"; ls "$1"; cat file'
    done = subprocess.run(
        [*mounting, script, "sh", data, sys.executable, SUPERVISOR],
        cwd=running.project,
        env={**running.environment, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
    )
    if "overlay" not in done.stdout:
        pytest.skip(f"this system allows no layers within layers: {done.stdout}")
    assert done.stdout.startswith("a\n a\n\nRead-only file system\n")
    assert "exited with 0" in done.stdout
    assert done.stdout.endswith("\na\na\n")


def test_a_user_without_rights(running: Running) -> None:
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin")
    if python is None or os.geteuid() != 0:
        pytest.skip("only the superuser can become another user, who needs a Python of the system")
    nobody = 65534
    # The folders around that of the test are open to nobody but the superuser.
    project = Path("/tmp") / f"gradlint-test-{running.mark}"  # noqa: S108
    project.mkdir()
    try:
        (project / "program.py").write_text(
            "open('new', 'w').write('x'); import os; print(os.getuid(), os.listdir('.'))"
        )
        os.chown(project, nobody, nobody)
        done = subprocess.run(
            [python, "-B", "-c", SUPERVISOR],
            cwd=project,
            env={"PATH": "/usr/bin:/bin", "HOME": str(project), "MARK": running.mark, "PYTHONPATH": str(ROOT)},
            user=nobody,
            group=nobody,
            extra_groups=[],
            check=False,
            capture_output=True,
            text=True,
        )
        if "gradlint" in done.stderr and "No module" in done.stderr:
            pytest.skip("the checkout is closed to other users")
        if "overlay" not in done.stdout:
            pytest.skip(f"this system gives other users no layers: {done.stdout}{done.stderr}")
        assert f"{nobody} ['new', 'program.py']" in done.stdout or f"{nobody} ['program.py', 'new']" in done.stdout
        assert f"exited with 0 {project}" in done.stdout
        assert os.listdir(project) == ["program.py"]
    finally:
        shutil.rmtree(project)
    assert running.left() == []


def test_what_a_layer_takes_in(tmp_path: Path) -> None:
    project, home, scratch = tmp_path / "home" / "project", tmp_path / "home", Path("/elsewhere/scratch")
    project.mkdir(parents=True)
    widest = sandbox.choices(project, scratch, {"HOME": str(home)})[0][0]
    assert widest in project.parents
    assert widest != Path("/")
    # The layer cannot lie in what it covers.
    assert sandbox.choices(project, tmp_path / "home" / "tmp", {"HOME": str(home)})[0] == (home,)
    assert sandbox.choices(project, tmp_path / "tmp", {"HOME": "/"}) == [(home,), (project,), ()]
    assert sandbox.choices(Path("/"), scratch, {"HOME": "/"}) == [()]


def test_caches_are_no_more_than_caches(tmp_path: Path) -> None:
    project, cache, models = tmp_path / "project", tmp_path / ".cache", tmp_path / "models"
    for folder in (project, cache, models):
        folder.mkdir()
    environment = {"HOME": str(tmp_path), "HF_HOME": str(models), "TORCH_HOME": str(project), "XDG_CACHE_HOME": "/"}
    assert sandbox.caches(project, environment) == [models, cache]


@pytest.mark.parametrize(
    ("containment", "kind", "sentence"),
    [
        (Containment(), "none", "the program's writes are not contained here"),
        (Containment((), True), "landlock", "the program's writes are refused outside its folder for temporary files"),
        (
            Containment(("/p",)),
            "overlay",
            "below /p goes to a scratch layer and is dropped, writes elsewhere are not contained",
        ),
        (Containment(("/p", "/h"), True, ("/c",)), "overlay+landlock", "elsewhere are refused; /c can be written"),
    ],
)
def test_the_words_for_a_containment(containment: Containment, kind: str, sentence: str) -> None:
    assert containment.kind == kind
    assert containment.sentence.endswith(sentence)
