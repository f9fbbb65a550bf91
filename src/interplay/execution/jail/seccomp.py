"""The system-call filter of a program, in classic BPF. Numbers are given for x86-64 and aarch64."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

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

# Refused with EPERM, as (x86-64, aarch64) numbers: other processes' memory, mounts, namespaces, kernel keys, modules,
# clocks, tracing, asynchronous rings, and memory that no limit counts (memfd, System V, message queues).
REFUSED = {
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "pidfd_getfd": (438, 438), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "acct": (163, 89), "syslog": (103, 116), "personality": (135, 92), "move_pages": (279, 239),
    "migrate_pages": (256, 238), "mbind": (237, 235), "set_mempolicy": (238, 237), "lookup_dcookie": (212, 18),
    "vhangup": (153, 58), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "iopl": (172, None), "ioperm": (173, None),
    "uselib": (134, None), "modify_ldt": (154, None), "nfsservctl": (180, 42),
}  # fmt: skip
# Beyond Landlock's reach: being told of changes to files outside.
WATCHING = {"inotify_add_watch": (254, 27)}
SIGNALLING = {"kill": (62, 129), "tgkill": (234, 131), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138),
              "rt_tgsigqueueinfo": (297, 240), "pidfd_send_signal": (424, 424)}  # fmt: skip
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW, KILL, REFUSE = 0x7FFF0000, 0x80000000, 0x00050000
LD, JEQ, JGE, JSET, RET = 0x20, 0x15, 0x35, 0x45, 0x06


def seccomp(private: bool, signals: bool) -> bytes:
    """The filter. `private`: in namespaces, where Unix sockets and watched files are the program's own; `signals`: to
    anyone in reach, else to itself and its group."""
    machine = platform.machine()
    if machine not in ARCHITECTURES:
        raise JailError(f"no system-call filter is known for {machine}; known: {', '.join(ARCHITECTURES)}")
    column, arch = ARCHITECTURES[machine]
    code: list[tuple[int, int, int, int]] = [(LD, 0, 0, 4), (JEQ, 1, 0, arch), (RET, 0, 0, KILL), (LD, 0, 0, 0)]
    if column == 0:  # the x32 numbers are a second way into everything
        code += [(JGE, 0, 1, 0x40000000), (RET, 0, 0, REFUSE | errno.ENOSYS)]
    for numbers in (REFUSED if private else REFUSED | WATCHING).values():
        if (number := numbers[column]) is not None:
            code += [(JEQ, 0, 1, number), (RET, 0, 0, REFUSE | errno.EPERM)]
    code += [(JEQ, 0, 1, 435), (RET, 0, 0, REFUSE | errno.ENOSYS)]  # clone3: its flags are out of a filter's reach
    spaces = NEWNS | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET | NEWCGROUP | NEWTIME
    code += [(JEQ, 0, 4, (56, 220)[column]), (LD, 0, 0, 16), (JSET, 0, 1, spaces), (RET, 0, 0, REFUSE | errno.EPERM)]
    code += [(RET, 0, 0, ALLOW)]
    unix = 1 if private else 0xFFFFFFFF
    code += [(JEQ, 0, 4, (41, 198)[column]), (LD, 0, 0, 16), (JEQ, 1, 0, unix), (RET, 0, 0, REFUSE | errno.EACCES)]
    code += [(RET, 0, 0, ALLOW)]
    for request in (0x5412, 0x541C):  # TIOCSTI, TIOCLINUX: typing into somebody's terminal
        code += [(JEQ, 0, 4, (16, 29)[column]), (LD, 0, 0, 24), (JEQ, 0, 1, request), (RET, 0, 0, REFUSE | errno.EPERM)]
        code += [(LD, 0, 0, 0)]
    # prctl, "nobody may look at me": what it holds open would not be counted.
    code += [
        (JEQ, 0, 4, (157, 167)[column]),
        (LD, 0, 0, 16),
        (JEQ, 0, 1, SET_DUMPABLE),
        (RET, 0, 0, REFUSE | errno.EPERM),
    ]
    code += [(LD, 0, 0, 0)]
    # fallocate in any mode but the plain one: space on disk past every limit of a file.
    code += [(JEQ, 0, 4, (285, 47)[column]), (LD, 0, 0, 24), (JEQ, 1, 0, 0), (RET, 0, 0, REFUSE | errno.EOPNOTSUPP)]
    code += [(LD, 0, 0, 0)]
    if not signals:
        for name, numbers in SIGNALLING.items():
            if name == "kill":  # to itself and its own group
                code += [(JEQ, 0, 5, numbers[column]), (LD, 0, 0, 16), (JEQ, 2, 0, os.getpid()), (JEQ, 1, 0, 0)]
                code += [(RET, 0, 0, REFUSE | errno.EPERM), (RET, 0, 0, ALLOW)]
            elif name == "tgkill":
                code += [(JEQ, 0, 4, numbers[column]), (LD, 0, 0, 16), (JEQ, 1, 0, os.getpid())]
                code += [(RET, 0, 0, REFUSE | errno.EPERM), (RET, 0, 0, ALLOW)]
            else:
                code += [(JEQ, 0, 1, numbers[column]), (RET, 0, 0, REFUSE | errno.EPERM)]
    code += [(RET, 0, 0, ALLOW)]
    return b"".join(struct.pack("HBBI", *line) for line in code)


def apply_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer)))
    call("a system-call filter cannot be set", LIBC.prctl(SET_SECCOMP, 2, header, 0, 0))
