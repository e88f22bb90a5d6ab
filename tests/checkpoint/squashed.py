# SPDX-License-Identifier: GPL-2.0-or-later
"""A file system as a cluster's home directories often are: it lets root do nothing (root_squash of NFS and Lustre). What
`source` holds appears at `mounted`, through FUSE; each request is served with the ids of the process that makes it, root's as
nobody's, and the kernel is told to remember nothing. Once there is a file of the log's name with `.lies` behind it, the user
may make nothing, root may do all, and directories are root's own, as root sees them. `requests` are the (uid, kind, name) of all that was asked."""

import contextlib
import ctypes
import errno
import os
import signal
import stat
import struct
import subprocess
import sys

SETFSUID, SETFSGID, MOUNT = 122, 123, 165  # system calls of x86-64
NOSUID_NODEV = 2 | 4
NOBODY = 65534
LARGEST = 1 << 17  # of a write
HEADER = struct.Struct("<IIQQIIII")
ATTRIBUTES = struct.Struct("<6Q10I")
ATTR_MODE, ATTR_UID, ATTR_GID, ATTR_SIZE, ATTR_ATIME, ATTR_MTIME, ATTR_FH, ATTR_ATIME_NOW, ATTR_MTIME_NOW = (1 << bit for bit in range(9))
OPENABLE = os.O_ACCMODE | os.O_TRUNC | os.O_APPEND
libc = ctypes.CDLL(None, use_errno=True)


def _text(part):
    return part.split(b"\0")[0]


class Server:
    def __init__(self, source, device, log):
        self.device, self.log = device, log
        self.lies = False  # to who asks now
        self.nodes = {1: os.open(source, os.O_PATH)}
        self.numbers = {self._inode(os.fstat(self.nodes[1])): 1}

    @staticmethod
    def _inode(about):
        return about.st_dev, about.st_ino

    def _path(self, number):
        """Of the inode itself; no name is looked up."""
        return f"/proc/self/fd/{self.nodes[number]}"

    def _attributes(self, about):
        mode, owner = about.st_mode, about.st_uid
        if self.lies and stat.S_ISDIR(mode):
            mode, owner = stat.S_IFDIR | 0o755, 0
        times = [about.st_atime_ns, about.st_mtime_ns, about.st_ctime_ns]
        return ATTRIBUTES.pack(about.st_ino, about.st_size, about.st_blocks, *(time // 10**9 for time in times), *(time % 10**9 for time in times),
                               mode, about.st_nlink, owner, about.st_gid, about.st_rdev, about.st_blksize, 0)

    def _entry(self, parent, name):
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.nodes[parent])
        about = os.fstat(fd)
        number = self.numbers.setdefault(self._inode(about), len(self.nodes) + 1)
        if number in self.nodes:
            os.close(fd)
        else:
            self.nodes[number] = fd
        return struct.pack("<4Q2I", number, 0, 0, 0, 0, 0) + self._attributes(about)

    def _attr(self, about):
        return struct.pack("<QII", 0, 0, 0) + self._attributes(about)

    def init(self, _number, data):
        major, minor = struct.unpack_from("<II", data)
        assert major == 7, (major, minor)
        return struct.pack("<4I2HII2H", 7, 31, LARGEST, 0, 0, 0, LARGEST, 1, 0, 0) + bytes(32)

    def lookup(self, number, data):
        return self._entry(number, _text(data))

    def getattr(self, number, data):
        flags, _, handle = struct.unpack_from("<IIQ", data)
        return self._attr(os.fstat(handle if flags & 1 else self.nodes[number]))

    def setattr(self, number, data):
        valid, _, handle, size, _, atime, mtime, _, atimensec, mtimensec, _, mode, _, uid, gid, _ = struct.unpack_from("<IIQQQQQQ8I", data)
        path = self._path(number)
        if valid & ATTR_MODE:
            os.chmod(path, mode & 0o7777)
        if valid & (ATTR_UID | ATTR_GID):
            os.chown(path, uid if valid & ATTR_UID else -1, gid if valid & ATTR_GID else -1)
        if valid & ATTR_SIZE:
            os.truncate(handle if valid & ATTR_FH else path, size)
        if valid & (ATTR_ATIME | ATTR_MTIME):
            now = os.stat(path)
            os.utime(path, ns=(atime * 10**9 + atimensec if valid & ATTR_ATIME else now.st_atime_ns,
                               mtime * 10**9 + mtimensec if valid & ATTR_MTIME else now.st_mtime_ns))
        return self._attr(os.fstat(self.nodes[number]))

    def readlink(self, number, _data):
        return os.readlink(b"", dir_fd=self.nodes[number])

    def symlink(self, number, data):
        name, target = data.split(b"\0")[:2]
        os.symlink(target, name, dir_fd=self.nodes[number])
        return self._entry(number, name)

    def mknod(self, number, data):
        mode, device, _, _ = struct.unpack_from("<4I", data)
        os.mknod(_text(data[16:]), mode, device, dir_fd=self.nodes[number])
        return self._entry(number, _text(data[16:]))

    def mkdir(self, number, data):
        os.mkdir(_text(data[8:]), struct.unpack_from("<I", data)[0], dir_fd=self.nodes[number])
        return self._entry(number, _text(data[8:]))

    def unlink(self, number, data):
        os.unlink(_text(data), dir_fd=self.nodes[number])

    def rmdir(self, number, data):
        os.rmdir(_text(data), dir_fd=self.nodes[number])

    def rename(self, number, data, names=8):
        old, new = data[names:].split(b"\0")[:2]
        os.rename(old, new, src_dir_fd=self.nodes[number], dst_dir_fd=self.nodes[struct.unpack_from("<Q", data)[0]])

    def rename2(self, number, data):
        if struct.unpack_from("<I", data, 8)[0] != 0:
            raise OSError(errno.EINVAL, "flags")
        self.rename(number, data, 16)

    def link(self, number, data):
        os.link(self._path(struct.unpack_from("<Q", data)[0]), _text(data[8:]), dst_dir_fd=self.nodes[number], follow_symlinks=True)
        return self._entry(number, _text(data[8:]))

    def open(self, number, data):
        handle = os.open(self._path(number), struct.unpack_from("<I", data)[0] & OPENABLE)
        return struct.pack("<QIi", handle, 0, 0)

    def create(self, number, data):
        flags, mode, _, _ = struct.unpack_from("<4I", data)
        name = _text(data[16:])
        handle = os.open(name, flags & (OPENABLE | os.O_EXCL) | os.O_CREAT | os.O_NOFOLLOW, mode & 0o7777, dir_fd=self.nodes[number])
        return self._entry(number, name) + struct.pack("<QIi", handle, 0, 0)

    def read(self, _number, data):
        handle, offset, size = struct.unpack_from("<QQI", data)
        return os.pread(handle, size, offset)

    def write(self, _number, data):
        handle, offset, size = struct.unpack_from("<QQI", data)
        return struct.pack("<II", os.pwrite(handle, data[40:40 + size], offset), 0)

    def statfs(self, number, _data):
        about = os.fstatvfs(self.nodes[number])
        return struct.pack("<5Q4I24x", about.f_blocks, about.f_bfree, about.f_bavail, about.f_files, about.f_ffree, about.f_bsize,
                           about.f_namemax, about.f_frsize, 0)

    def release(self, _number, data):
        os.close(struct.unpack_from("<Q", data)[0])

    def opendir(self, number, _data):
        return struct.pack("<QIi", os.open(self._path(number), os.O_RDONLY | os.O_DIRECTORY), 0, 0)

    def readdir(self, number, data):
        handle, offset, size = struct.unpack_from("<QQI", data)
        out = b""
        for at, name in enumerate([".", "..", *sorted(os.listdir(handle))]):
            about = os.stat(name, dir_fd=self.nodes[number], follow_symlinks=False)
            coded = os.fsencode(name)
            entry = struct.pack("<QQII", about.st_ino, at + 1, len(coded), stat.S_IFMT(about.st_mode) >> 12) + coded
            entry += bytes(-len(entry) % 8)
            if at >= offset and len(out) + len(entry) <= size:
                out += entry
            elif at >= offset:
                break
        return out

    def access(self, number, data):
        if not os.access(self._path(number), struct.unpack_from("<I", data)[0], effective_ids=True):
            raise OSError(errno.EACCES, "access")

    def getxattr(self, number, data):
        return self._sized(data, os.getxattr(self._path(number), _text(data[8:])))

    def listxattr(self, number, data):
        return self._sized(data, b"".join(os.fsencode(name) + b"\0" for name in os.listxattr(self._path(number))))

    @staticmethod
    def _sized(data, value):
        size = struct.unpack_from("<I", data)[0]
        if size == 0:
            return struct.pack("<II", len(value), 0)
        if len(value) > size:
            raise OSError(errno.ERANGE, "size")
        return value

    def setxattr(self, number, data):
        size, flags = struct.unpack_from("<II", data)
        name = _text(data[8:])
        start = 8 + len(name) + 1
        os.setxattr(self._path(number), name, data[start:start + size], flags)

    def removexattr(self, number, data):
        os.removexattr(self._path(number), _text(data))

    def nothing(self, _number, _data):
        return b""

    KINDS = {1: lookup, 3: getattr, 4: setattr, 5: readlink, 6: symlink, 8: mknod, 9: mkdir, 10: unlink, 11: rmdir, 12: rename, 13: link,
             14: open, 15: read, 16: write, 17: statfs, 18: release, 20: nothing, 21: setxattr, 22: getxattr, 23: listxattr,
             24: removexattr, 25: nothing, 26: init, 27: opendir, 28: readdir, 29: release, 34: access, 35: create, 45: rename2}
    UNANSWERED = (2, 36, 42)  # forget, interrupt, batch_forget

    def _answer(self, kind, number, uid, gid, data):
        """Errors are answers, too."""
        if kind not in self.KINDS:
            return -errno.ENOSYS, b""
        changed = os.path.exists(self.log.name + ".lies")
        if changed and uid != 0 and self.KINDS[kind].__name__ == "mknod":
            return -errno.EACCES, b""
        self.lies = changed and uid == 0
        libc.syscall(SETFSGID, gid if self.lies else gid or NOBODY)
        libc.syscall(SETFSUID, uid if self.lies else uid or NOBODY)  # root's rights to files go with it
        try:
            return 0, self.KINDS[kind](self, number, data) or b""
        except OSError as error:
            return -error.errno, b""
        finally:
            libc.syscall(SETFSUID, 0)
            libc.syscall(SETFSGID, 0)

    def serve(self):
        while True:
            try:
                request = os.read(self.device, LARGEST + 4096)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                if error.errno in (errno.ENOENT, errno.EINTR):  # the request was interrupted
                    continue
                raise
            _, kind, unique, number, uid, gid, _, _ = HEADER.unpack_from(request)
            if kind in self.UNANSWERED:
                continue
            status, out = self._answer(kind, number, uid, gid, request[HEADER.size:])
            named = self.KINDS[kind].__name__ if kind in self.KINDS else kind
            self.log.write(f"{uid} {named} {status}\n")
            self.log.flush()
            with contextlib.suppress(FileNotFoundError):  # nobody waits any more
                os.write(self.device, struct.pack("<IiQ", 16 + len(out), status, unique) + out)


class Squashed:
    """Mounted until close()."""

    def __init__(self, source, mounted, log):
        self.mounted, self.log = mounted, log
        device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
        if libc.mount(b"squashed", os.fsencode(mounted), b"fuse", NOSUID_NODEV, options.encode()) != 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), mounted)
        self.server = subprocess.Popen([sys.executable, os.path.abspath(__file__), source, str(device), log], pass_fds=(device,),
                                       stdin=subprocess.DEVNULL)
        os.close(device)

    def requests(self):
        """(uid, kind, 0 or -errno) of each."""
        with open(self.log, encoding="utf-8") as file:
            return [(int(uid), kind, int(status)) for uid, kind, status in map(str.split, file)]

    def close(self):
        subprocess.run(["umount", "-l", self.mounted], check=True)
        with contextlib.suppress(ProcessLookupError):
            self.server.send_signal(signal.SIGTERM)
        self.server.wait(60)


if __name__ == "__main__":
    os.umask(0)
    os.setgroups([])
    with open(sys.argv[3], "a", encoding="utf-8") as written:
        Server(sys.argv[1], int(sys.argv[2]), written).serve()
