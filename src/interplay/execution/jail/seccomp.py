"""The system-call filters of a program, in classic BPF. The tables have the call numbers for x86-64 and aarch64.

Every program runs with `base_filter`. `only_itself` and `only_reading` forbid more and are added to it: the kernel
evaluates all filters and applies the strictest result.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from functools import cache

from interplay.execution.jail.syscall import (
    LIBC,
    NEWCGROUP,
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWTIME,
    NEWUSER,
    NEWUTS,
    SET_DUMPABLE,
    SET_SECCOMP,
    JailError,
    call,
)

Numbers = tuple[int | None, int | None]  # the number of one system call on x86-64 and on aarch64
Line = tuple[int, int, int, int]  # one instruction: operation, lines to skip if true, lines to skip if false, value

# Other processes' memory and scheduling, mounts, namespaces, kernel keys, modules, clocks, tracing, io_uring.
REFUSED: Mapping[str, Numbers] = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "pidfd_getfd": (438, 438), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "statmount": (457, 457),
    "listmount": (458, 458), "open_tree_attr": (467, 467), "lsm_set_self_attr": (460, 460), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "fanotify_init": (300, 262), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "acct": (163, 89), "syslog": (103, 116), "personality": (135, 92),
    "move_pages": (279, 239), "migrate_pages": (256, 238), "mbind": (237, 235), "set_mempolicy": (238, 237),
    "lookup_dcookie": (212, 18), "vhangup": (153, 58), "iopl": (172, None), "ioperm": (173, None),
    "uselib": (134, None), "modify_ldt": (154, None), "nfsservctl": (180, 42), "ioprio_set": (251, 30),
}  # fmt: skip
# Calls that take memory which belongs to no process: files in memory, System V, queues, pages and descriptors in pipes.
UNCOUNTED: Mapping[str, Numbers] = {
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "semget": (64, 190),
    "msgget": (68, 186), "mq_open": (240, 180), "vmsplice": (278, 75), "splice": (275, 76), "tee": (276, 77),
    "sendfile": (40, 71), "sendmsg": (46, 211), "sendmmsg": (307, 269),
}  # fmt: skip
# Resources of which a user has few, for all processes together: a program could leave none for other processes.
SCARCE: Mapping[str, Numbers] = {
    "inotify_init": (253, None), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27), "io_setup": (206, 0)
}  # fmt: skip
# Landlock does not control these: a program could change the mode, owner, times or attributes of its user's files. The
# calls return success and do nothing, so that `shutil.copy` and `tarfile` work.
UNSEEN: Mapping[str, Numbers] = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "file_setattr": (469, 469),
}  # fmt: skip
TRUNCATE: Numbers = (76, 45)  # truncate by path: Landlock controls it from version 3 on
CREATING: Mapping[str, Numbers] = {
    "creat": (85, None), "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None), "renameat": (264, 38),
    "renameat2": (316, 276), "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "link": (86, None),
    "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33),
    "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47), "openat2": (437, 437),
}  # fmt: skip
STARTING: Mapping[str, Numbers] = {
    "fork": (57, None), "vfork": (58, None), "clone": (56, 220), "clone3": (435, 435), "execve": (59, 221),
    "execveat": (322, 281), "socket": (41, 198), "socketpair": (53, 199),
}  # fmt: skip
SIGNALLING: Mapping[str, Numbers] = {
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
}  # fmt: skip
# Allowed only for the calling process, which is number 0; otherwise a program could reach its user's other processes.
SELF_ONLY: Mapping[str, Numbers] = {
    "prlimit64": (302, 261), "sched_setaffinity": (203, 122), "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
}  # fmt: skip
KILL_ONE: Numbers = (62, 129)
KILL_THREAD: Numbers = (234, 131)
SOCKETS: tuple[Numbers, Numbers] = (41, 198), (53, 199)
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW, END, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
SEEM = REFUSE  # with errno 0: the call returns 0 and has no effect
LD, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06
EPERM = REFUSE | errno.EPERM


def machine() -> tuple[int, int]:
    """The column of the tables above for this machine, and the kernel's number for its architecture."""
    name = platform.machine()
    if name not in ARCHITECTURES:
        raise JailError(f"there is no system-call filter for {name}; known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[name]


class _Filter:
    """The instructions, rule by rule. Between two rules the accumulator holds the number of the call."""

    def __init__(self) -> None:
        self.column, arch = machine()
        self.code: list[Line] = [(LD, 0, 0, 4), (JEQ, 1, 0, arch), (RET, 0, 0, END), (LD, 0, 0, 0)]
        if self.column == 0:  # refuse the x32 numbers, with which every call could be made too
            self.code += [(JGE, 0, 1, 0x40000000), (RET, 0, 0, REFUSE | errno.ENOSYS)]

    def always(self, numbers: Numbers, verdict: int) -> None:
        if (number := numbers[self.column]) is not None:
            self.code += [(JEQ, 0, 1, number), (RET, 0, 0, verdict)]

    def all_of(self, table: Mapping[str, Numbers], verdict: int) -> None:
        for numbers in table.values():
            self.always(numbers, verdict)

    def where(self, numbers: Numbers, argument: int, values: Sequence[int], verdict: int) -> None:
        """Return `verdict` if the argument is one of the values."""
        last = len(values) - 1
        self._looking(numbers, argument, [(JEQ, last - n, int(n == last), v) for n, v in enumerate(values)], verdict)

    def unless(self, numbers: Numbers, argument: int, values: Sequence[int], verdict: int) -> None:
        """Return `verdict` if the argument is not one of the values."""
        self._looking(numbers, argument, [(JEQ, len(values) - n, 0, v) for n, v in enumerate(values)], verdict)

    def with_bits(self, numbers: Numbers, argument: int, bits: int, verdict: int) -> None:
        """Return `verdict` if the argument has one of the bits."""
        self._looking(numbers, argument, [(JSET, 0, 1, bits)], verdict)

    def _looking(self, numbers: Numbers, argument: int, tests: list[Line], verdict: int) -> None:
        if (number := numbers[self.column]) is not None:
            lines = [(LD, 0, 0, 16 + 8 * argument), *tests, (RET, 0, 0, verdict), (LD, 0, 0, 0)]
            self.code += [(JEQ, 0, len(lines), number), *lines]

    def done(self) -> bytes:
        return b"".join(struct.pack("HBBI", *line) for line in [*self.code, (RET, 0, 0, ALLOW)])


@cache
def base_filter(private: bool, landlock: int) -> bytes:
    """`private` means that the program runs in namespaces, where all Unix sockets and files that it can reach are its
    own. `landlock` is the kernel's version of Landlock, if Landlock is used."""
    made = _Filter()
    for table in (REFUSED, UNCOUNTED, SCARCE):
        made.all_of(table, EPERM)
    if not private:
        made.all_of(UNSEEN, SEEM)
        if landlock < 3:
            made.always(TRUNCATE, REFUSE | errno.EACCES)
    made.always((435, 435), REFUSE | errno.ENOSYS)  # clone3: a filter cannot read its flags
    made.with_bits(
        (56, 220), 0, NEWNS | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET | NEWCGROUP | NEWTIME, EPERM
    )  # clone
    made.unless(SOCKETS[0], 0, [1] if private else [0xFFFFFFFF], REFUSE | errno.EACCES)  # AF_UNIX
    made.unless(SOCKETS[1], 0, [1], REFUSE | errno.EACCES)
    made.where((54, 208), 2, [7, 8, 32, 33], EPERM)  # setsockopt: larger buffers than the memory count assumes
    # ioctl: typing into a terminal, signals by I/O, attribute flags of a file that belongs to the user
    made.where((16, 29), 1, [0x5412, 0x541C, 0x8901, 0x8902, 0x40086602, 0x401C5820], EPERM)
    made.where((72, 25), 1, [8, 10, 15, 1031], EPERM)  # fcntl: signals by I/O, larger pipes
    # prctl: a program that hides its open files would not be counted; core scheduling affects other processes
    made.where((157, 167), 0, [SET_DUMPABLE, 62], EPERM)
    made.unless((285, 47), 1, [0], REFUSE | errno.EOPNOTSUPP)  # fallocate: can take space beyond a file's size limit
    for numbers in SELF_ONLY.values():
        made.unless(numbers, 0, [0], EPERM)
    made.where((141, 140), 0, [2], EPERM)  # setpriority for all processes of the user
    made.unless((141, 140), 1, [0], EPERM)
    return made.done()


def only_itself() -> bytes:
    """Allow signals only to this process and its group."""
    made = _Filter()
    made.all_of(SIGNALLING, EPERM)
    made.unless(KILL_ONE, 0, [os.getpid(), 0], EPERM)
    made.unless(KILL_THREAD, 0, [os.getpid()], EPERM)
    return made.done()


def only_reading() -> bytes:
    """Forbid changing files, starting processes and sending signals. What remains is to compute and to answer."""
    made = _Filter()
    for table in (CREATING, UNSEEN, STARTING, SIGNALLING):
        made.all_of(table, EPERM)
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    made.with_bits((2, None), 1, writing, REFUSE | errno.EROFS)  # open
    made.with_bits((257, 56), 2, writing, REFUSE | errno.EROFS)  # openat
    made.unless(KILL_ONE, 0, [os.getpid()], EPERM)
    made.unless(KILL_THREAD, 0, [os.getpid()], EPERM)
    return made.done()


def apply_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    call("a system-call filter cannot be set", LIBC.prctl(SET_SECCOMP, 2, header, 0, 0))
