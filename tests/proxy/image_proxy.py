# SPDX-License-Identifier: GPL-2.0-or-later
"""Device proxies whose clients are saved, moved and restored; used by test_image.py."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", part) for part in ("bench", "workloads")]
import declared  # noqa: E402
import proxied  # noqa: E402

PATIENCE = 60  # seconds, for what must not hang
WORKLOADS = declared.workloads(proxied.program("workloads"))  # name -> number of devices
WORKLOADS_DATA = os.path.join(proxied.TOP, "tests", "workloads", "data")


def numbers(line):
    """'name value name value...' as a dictionary."""
    fields = line.split()
    return dict(zip(fields[::2], map(int, fields[1::2])))


def tool(*words, check=True):
    """singularity-images; what it says as numbers, or the process if it is not to be checked."""
    done = subprocess.run([proxied.program("proxy", "singularity-images"), *map(str, words)], capture_output=True, text=True,
                          timeout=PATIENCE, check=False)
    if not check:
        return done
    assert done.returncode == 0, done.stderr
    return numbers(done.stdout)


class Place:
    """Sockets in a directory, and the proxies behind them, one for each virtual device."""

    def __init__(self, devices=1, options=(), variables=None):
        self.options = list(options)
        self.variables = variables or {}  # of the proxies' environment
        self.directory = tempfile.TemporaryDirectory(prefix="singularity-images-")
        self.devices = devices
        self.proxies = [None] * devices
        self.started = 0

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def socket(self, device):
        return self.path(f"{device}.sock")

    def control(self, device):
        return self.path(f"{device}.control")

    def log(self):
        texts = []
        for number in range(self.started):
            with open(self.path(f"log.{number}"), encoding="utf-8", errors="replace") as log:
                texts.append(f"--- proxy {number}\n{log.read()}")
        return "\n".join(texts)

    def start(self, device=0):
        ready, writing = os.pipe()
        with open(self.path(f"log.{self.started}"), "w", encoding="utf-8") as log:
            self.started += 1
            # Every proxy's driver has one device, so that any proxy can take any other's images.
            self.proxies[device] = subprocess.Popen(
                [proxied.program("singularity-proxyd"), "--driver", proxied.program("softgpu", "libcuda.so.1"), "--socket",
                 self.socket(device), "--control", self.control(device), "--ready-fd", str(writing), "--die-with-parent", *self.options],
                pass_fds=[writing], stderr=log, env=dict(os.environ, SINGULARITY_SOFTGPU_DEVICES="1", **self.variables))
        os.close(writing)
        with os.fdopen(ready) as line:
            assert line.readline(), self.log()
        return self

    def start_all(self):
        for device in range(self.devices):
            self.start(device)
        return self

    def kill(self, device=0):
        self.proxies[device].kill()
        self.proxies[device].wait()

    def save(self, file, *options, device=0, **more):
        return tool("save", self.control(device), self.path(file), *options, **more)

    def restore(self, file, *options, device=0, **more):
        return tool("restore", self.control(device), self.path(file), *options, **more)

    def resume(self, device=0, **more):
        return tool("resume", self.control(device), **more)

    def awaited(self, device=0, **more):
        return tool("await", self.control(device), "/proc", **more)

    def environment(self, **more):
        sockets = ":".join(self.socket(device) for device in range(self.devices))
        return {**os.environ, "SINGULARITY_PROXY_SOCKETS": sockets, "LD_LIBRARY_PATH": proxied.program("client"),
                "LD_AUDIT": proxied.program("libsingularity-redirect.so"), "SINGULARITY_PROXY_ATTACH_TIMEOUT": str(PATIENCE),
                "WORKLOADS_DATA": WORKLOADS_DATA, **more}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for proxy in self.proxies:
            if proxy is None or proxy.poll() is not None:
                continue
            proxy.send_signal(signal.SIGTERM)
            try:
                proxy.wait(10)
            except subprocess.TimeoutExpired:
                proxy.kill()
                proxy.wait()
        self.directory.cleanup()


@contextlib.contextmanager
def running(command, environment):
    """A program whose output is read at its end; it is gone when this ends."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err)

        def result():
            process.wait(PATIENCE)
            for file in (out, err):
                file.seek(0)
            return process.returncode, out.read(), err.read().decode("utf-8", "replace")

        process.result = result
        try:
            yield process
        finally:
            process.kill()
            process.wait()
