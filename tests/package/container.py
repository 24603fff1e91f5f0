#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a shell command in a root with the rights that Docker gives a container.

The command has Docker's fourteen capabilities, and the system calls of
docker.denied fail. tests/package/roots.sh makes the namespaces and mounts around
it. Root alone, on x86-64.

container.py FOLDER COMMAND
"""
import ctypes
import errno
import os
import pathlib
import struct
import sys

DENIED = pathlib.Path(__file__).with_name("docker.denied")
# chown, dac_override, fowner, fsetid, kill, setgid, setuid, setpcap,
# net_bind_service, net_raw, sys_chroot, mknod, audit_write, setfcap.
KEPT = {0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31}
CAPABILITIES_MAX = 64

PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ERRNO = 0x00050000
SECCOMP_RET_ALLOW = 0x7FFF0000
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER_AT, ARGUMENT_AT = 0, 16  # in struct seccomp_data; the low half of the argument


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("=HBBI", code, if_true, if_false, value)


def refuse(error):
    return instruction(RETURN, SECCOMP_RET_ERRNO | error)


def judged(rule, values):
    """Return what refuses a call by its first argument, and else goes on."""
    numbers = [int(value, 0) for value in values]
    code = ANY_BIT if rule == "has" else EQUAL
    made = [instruction(LOAD, ARGUMENT_AT)]
    for at, number in enumerate(numbers, 1):
        # The values that "not" names jump over the refusal.
        made.append(instruction(code, number, len(numbers) - at + 1, 0) if rule == "not"
                    else instruction(code, number, 0, 1))
    return made + [refuse(errno.EPERM)]


def call_filter(lines):
    """Return the program of the kernel for the lines of docker.denied."""
    made = []
    for line in lines:
        _, number, *rest = line.split()
        if not rest or rest[0].startswith("E"):
            body = [refuse(getattr(errno, rest[0] if rest else "EPERM"))]
        else:
            body = judged(rest[0], rest[1:])
        made += [instruction(LOAD, NUMBER_AT), instruction(EQUAL, int(number), 0, len(body))] + body
    return made + [instruction(RETURN, SECCOMP_RET_ALLOW)]


def install(program):
    """Make the kernel judge each call from now on."""
    text = b"".join(program)
    buffer = ctypes.create_string_buffer(text, len(text))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def drop_capabilities():
    """Shrink the bounding set: execve() takes all others from root, too."""
    libc = ctypes.CDLL(None, use_errno=True)
    for number in set(range(CAPABILITIES_MAX)) - KEPT:
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # EINVAL: this kernel has fewer


def main(folder, command):
    lines = [line for line in DENIED.read_text().splitlines() if not line.startswith("#")]
    if os.uname().machine != "x86_64":
        sys.exit("container.py: docker.denied has the numbers of x86-64")
    os.chroot(folder)
    os.chdir("/")
    drop_capabilities()
    install(call_filter(lines))
    os.execv("/bin/sh", ["sh", "-c", command])


main(*sys.argv[1:])
