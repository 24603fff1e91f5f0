#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fuse.py FOLDER COMMAND...: run it with a file system of FUSE on FOLDER, which
is an empty folder of mode 700 that takes no file. Wants a mount namespace of its
own. Exits as the command does."""

import ctypes
import errno
import os
import struct
import subprocess
import sys
import threading

INIT, LOOKUP, FORGET, GETATTR, MKNOD, BATCH_FORGET = 26, 1, 2, 3, 8, 42
ANSWERS = {LOOKUP: errno.ENOENT, MKNOD: errno.EPERM}


def answer(opcode):
    """(error, bytes) as <linux/fuse.h> has them."""
    if opcode == INIT:
        return 0, struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, *[0] * 8)
    if opcode == GETATTR:
        attributes = struct.pack("<6Q10I", 1, *[0] * 8, 0o40700, 2, os.getuid(), os.getgid(), 0, 4096, 0)
        return 0, struct.pack("<Q2I", 0, 0, 0) + attributes
    return ANSWERS.get(opcode, errno.ENOSYS), b""


def serve(fd):
    while True:
        request = os.read(fd, 1 << 17)
        _, opcode, unique = struct.unpack_from("<IIQ", request)
        if opcode in (FORGET, BATCH_FORGET):
            continue
        error, body = answer(opcode)
        os.write(fd, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)


def main():
    folder, command = sys.argv[1], sys.argv[2:]
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"fake", folder.encode(), b"fuse.fake", 0, options.encode()):
        sys.exit(f"fuse.py: {os.strerror(ctypes.get_errno())}")
    threading.Thread(target=serve, args=(fd,), daemon=True).start()
    status = subprocess.call(command)
    os._exit(status)


main()
