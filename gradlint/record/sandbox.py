"""Keeps what the program writes away from the files of its user.

Two means, both of Linux and both open to a process without rights.  A *layer* is an overlay in a mount namespace of the
program's own: what it writes, deletes and renames below a folder happens in a scratch folder, and everything reads as
before.  *Landlock* refuses what would be written anywhere else.  Containers and some distributions forbid the first,
old kernels lack the second, and other systems have neither: `Containment` says what holds.

`enter` is called in the process that becomes the program, between fork and exec.
"""

from __future__ import annotations

import contextlib
import ctypes
import enum
import os
import re
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_RDONLY = 0x1
_MS_REMOUNT = 0x20
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_PRIVATE = 0x40000
_PR_SET_NO_NEW_PRIVS = 38

_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_WRITE_FILE = 1 << 1
_TRUNCATE = 1 << 14
# Removing and making files of each kind, and, with later versions, moving them between folders and cutting them short.
_CHANGES = _WRITE_FILE | sum(1 << bit for bit in range(4, 13))
_CHANGES_SINCE = {2: 1 << 13, 3: _TRUNCATE}


class Sandbox(enum.Enum):
    """What a user asks for."""

    AUTO = "auto"
    OFF = "off"


@dataclass(frozen=True)
class Containment:
    """What became of it."""

    layered: tuple[str, ...] = ()
    refused: bool = False
    kept: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """One word for a report that machines read."""
        if self.layered:
            return "overlay+landlock" if self.refused else "overlay"
        return "landlock" if self.refused else "none"

    @property
    def sentence(self) -> str:
        """What a person should know of it."""
        if not self.layered and not self.refused:
            return "the program's writes are not contained here"
        kept = f"; {_listed(self.kept)} can be written" if self.kept else ""
        if not self.layered:
            return f"the program's writes are refused outside its folder for temporary files{kept}"
        elsewhere = "refused" if self.refused else "not contained"
        return (
            f"what the program writes below {_listed(self.layered)} goes to a scratch layer and is dropped, "
            f"writes elsewhere are {elsewhere}{kept}"
        )


def choices(project: Path, scratch: Path, environment: Mapping[str, str]) -> list[tuple[Path, ...]]:
    """The sets of folders to lay a layer over, the best first; the last one is empty."""
    wide = [_top(project, scratch)]
    home = environment.get("HOME")
    if home and os.path.isdir(home):
        wide.append(_top(Path(os.path.realpath(home)), scratch))
    # A layer over the root would not be seen by a process whose root is the folder below it.
    wide = [folder for folder in dict.fromkeys(wide) if folder != Path("/")]
    widest = tuple(folder for folder in wide if not any(other in folder.parents for other in wide))
    narrow = () if project == Path("/") else (project,)
    return list(dict.fromkeys((widest, narrow, ())))


def caches(project: Path, environment: Mapping[str, str]) -> list[Path]:
    """Folders that programs fill to be quicker the next time; what a run downloads into them may stay."""
    home = os.path.realpath(environment.get("HOME") or "/")
    named = [environment.get(name) for name in ("XDG_CACHE_HOME", "HF_HOME", "TORCH_HOME", "TRITON_CACHE_DIR")]
    named += [f"{home}/{name}" for name in (".cache", ".triton", ".nv")]
    found = dict.fromkeys(Path(os.path.realpath(path)) for path in named if path and os.path.isdir(path))
    # A cache that holds more than a cache does is none.
    around = {folder for inner in (project, Path(home)) for folder in (inner, *inner.parents)}
    return [folder for folder in found if folder not in around]


def enter(folders: Sequence[Path], scratch: Path, writable: Iterable[Path]) -> bool:
    """Contains this process and those that it starts, and says whether writes elsewhere are refused.

    Raises `OSError` where this system does not let it, in which case this process is of no further use.
    """
    kept = [*writable, scratch]
    if folders:
        _layer(folders, scratch, kept)
    refused = _refuse(folders, kept)
    if not folders and not refused:
        raise OSError("no Landlock")
    return refused


def _listed(paths: Sequence[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"


def _top(folder: Path, scratch: Path) -> Path:
    """The widest folder around this one that belongs to the user.

    A layer can only take in what is in a folder of the user: other folders cannot be copied up without rights.
    Folders that everyone writes to, such as `/tmp`, are not the user's, and hold what the layer itself is made of.
    """
    while True:
        parent = folder.parent
        about = parent.stat()
        if (
            parent == Path("/")
            or parent == folder
            or about.st_uid != os.geteuid()
            or about.st_mode & stat.S_ISVTX
            or parent in scratch.parents
        ):
            return folder
        folder = parent


def _layer(folders: Sequence[Path], scratch: Path, kept: Sequence[Path]) -> None:
    cwd = os.getcwd()
    userns = _unshare()
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    mounts = {Path(mount) for mount in _mounts()}
    # Held open, since the layer hides them.
    held = {path: os.open(path, os.O_PATH) for path in kept if any(f in (path, *path.parents) for f in folders)}
    layers = scratch / "layers"
    layers.mkdir(exist_ok=True)
    # Not every file system can hold the changes of another one, nor of a folder around it; memory always can.
    in_memory = any(folder in layers.parents for folder in folders)
    if not in_memory:
        try:
            _layer_each(folders[:1], layers, mounts, userns=userns)
        except OSError:
            in_memory = True
        else:
            folders = folders[1:]
    if in_memory:
        _mount("tmpfs", str(layers), "tmpfs", 0)
    _layer_each(folders, layers, mounts, userns=userns)
    for path, opened in held.items():
        _mount(f"/proc/self/fd/{opened}", str(path), None, _MS_BIND | _MS_REC)
        os.close(opened)
    # The folder that this process stands in is still the one below the layer.
    os.chdir(cwd)


def _layer_each(folders: Sequence[Path], layers: Path, mounts: Iterable[Path], *, userns: bool) -> None:
    # By its number, since a layer may hide the folder of the layers.
    number = os.open(layers, os.O_PATH | os.O_DIRECTORY)
    layers = Path(f"/proc/self/fd/{number}")
    for folder in folders:
        # An overlay does not take in what is mounted inside of its folder.
        inside: list[tuple[Path, int]] = []
        for mount in sorted(mount for mount in mounts if folder in mount.parents):
            # One who may not even look into a folder has no use for it.
            with contextlib.suppress(OSError):
                inside.append((mount, os.open(mount, os.O_PATH)))
        lower = os.open(folder, os.O_PATH | os.O_DIRECTORY)
        _overlay(lower, folder, layers, userns=userns)
        os.close(lower)
        for mount, opened in inside:
            try:
                _overlay(opened, mount, layers, userns=userns)
            except OSError:
                _mount(f"/proc/self/fd/{opened}", str(mount), None, _MS_BIND | _MS_REC)
                _mount(None, str(mount), None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY)
            os.close(opened)
    os.close(number)


def _unshare() -> bool:
    """Enters a mount namespace, and says whether this is inside a user namespace.

    Whoever has no rights takes a new one of those to get them.  The superuser needs none, and would lose in it the
    right to the files of all other users.
    """
    libc = _libc()
    if libc.unshare(_CLONE_NEWNS) == 0:
        # This one may be the superuser of a user namespace only, such as that of a rootless container.
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", f"{2**32 - 1}"]
    uid, gid = os.geteuid(), os.getegid()
    _check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    return True


def _overlay(lower: int, folder: Path, layers: Path, *, userns: bool) -> None:
    number = len(list(layers.iterdir()))
    upper, work = layers / f"{number}" / "upper", layers / f"{number}" / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    # The layer's own folder is what the program sees at the top.
    about = os.fstat(lower)
    with contextlib.suppress(OSError):
        os.chown(upper, about.st_uid, about.st_gid)
    os.chmod(upper, stat.S_IMODE(about.st_mode))
    opened = [os.open(path, os.O_PATH) for path in (upper, work)]
    # Numbers in place of names: there are characters that a name could not have here.
    options = f"lowerdir=/proc/self/fd/{lower},upperdir=/proc/self/fd/{opened[0]},workdir=/proc/self/fd/{opened[1]}"
    # Only the superuser may have folders renamed that are in the lower part; others are told to copy them.
    options += ",userxattr" if userns else ",redirect_dir=on"
    try:
        _mount("overlay", str(folder), "overlay", 0, options)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    # A space in a name is written as `\040`.
    return [re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), line.split(" ")[4]) for line in lines]


def _refuse(folders: Iterable[Path], kept: Iterable[Path]) -> bool:
    """Refuses changes outside of these folders with Landlock; false where the kernel has none."""
    libc = _libc()
    version = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if version < 1:
        return False
    changes = _CHANGES | sum(bit for since, bit in _CHANGES_SINCE.items() if version >= since)
    rights = struct.pack("=Q", changes)
    rules = _check(libc.syscall(_LANDLOCK_CREATE, rights, ctypes.c_size_t(len(rights)), ctypes.c_uint32(0)))
    # Devices and shared memory are written to by CUDA and by workers, and `/proc` by whoever names its threads.
    allowed = [(path, changes) for path in (*folders, *kept, Path("/dev"))]
    allowed.append((Path("/proc"), changes & (_WRITE_FILE | _TRUNCATE)))
    for path, right in allowed:
        opened = os.open(path, os.O_PATH)
        rule = struct.pack("=Qi", right, opened)
        _check(libc.syscall(_LANDLOCK_ADD, rules, 1, rule, ctypes.c_uint32(0)))
        os.close(opened)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _check(libc.syscall(_LANDLOCK_RESTRICT, rules, ctypes.c_uint32(0)))
    os.close(rules)
    return True


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind, options)]
    _check(_libc().mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
