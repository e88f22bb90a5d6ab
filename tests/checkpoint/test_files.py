# SPDX-License-Identifier: GPL-2.0-or-later
"""Files that a node has open for writing: after a restore they are what they were at the checkpoint, whatever the node did to them since."""

import contextlib
import os
import shutil
import subprocess
import sys

import nodes
import pytest

sys.path.insert(0, os.path.join(nodes.HERE, "programs"))
import writer  # noqa: E402

STEPS = 12
SAVED_AFTER = 4
LOST_AFTER = 9
PROGRAM = os.path.join(nodes.HERE, "programs", "writer.py")


def undisturbed(place, kind):
    directory = place.path("undisturbed")
    os.mkdir(directory)
    with open(place.path("allowed"), "w", encoding="ascii") as file:
        file.write(f"{STEPS:02}")
    subprocess.run([sys.executable, PROGRAM, kind, str(STEPS)], cwd=directory, check=True, timeout=nodes.PATIENCE)
    os.unlink(place.path("allowed"))
    os.unlink(place.path("done"))
    return writer.content(directory)


class Work:
    """A node in which the program writes, to directory `files`."""

    def __init__(self, place, kind, make=True):
        self.place = place
        self.directory = place.path("files")
        if make:
            os.mkdir(self.directory)
            os.chown(self.directory, nodes.USER, nodes.USER)
        shutil.copy(PROGRAM, place.shared)
        self.node = place.start("/bin/sh", "-c", 'cd files; exec python3 ../writer.py "$@"', "sh", kind, str(STEPS))

    def path(self, name):
        return os.path.join(self.directory, name)

    def until(self, steps):
        with open(self.place.path("allowed.new"), "w", encoding="ascii") as file:
            file.write(f"{steps:02}")
        os.rename(self.place.path("allowed.new"), self.place.path("allowed"))

        def are_done():
            has_ended = self.node.ended()
            done = writer.number_in(self.place.path("done")) == steps
            assert done or not has_ended, f"status {self.node.wait()}: {self.node.process.stderr.read()} {self.place.output()}"
            return done

        self.place.wait_for(are_done, f"step {steps}")

    def save(self, after="run", *options):
        return self.place.dump(self.node, after=after, options=["--goes-on=yes" if after == "run" else "--goes-on=no", *options])[0]

    def lose(self):
        self.node.kill()

    def restore(self, images, *options):
        """Before it does another step."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.place.path("done"))
        with open(self.place.path("allowed"), "w", encoding="ascii") as file:
            file.write("00")  # as long as it was: it may have been open, for reading
        self.node = self.place.restore(images, options=options)

    def end(self):
        self.until(STEPS)
        assert self.node.wait() == 0, self.place.output()
        return self.node.process.stderr.read()


def lost(place, kind, *options):
    """It has run on after the checkpoint."""
    work = Work(place, kind)
    work.until(SAVED_AFTER)
    images = work.save("run", *options)
    work.until(LOST_AFTER)
    work.lose()
    return work, images


@pytest.mark.parametrize("kind", writer.KINDS)
def test_power_loss(place, kind):
    """The node runs on after a checkpoint, and is lost."""
    wanted = undisturbed(place, kind)
    work, images = lost(place, kind)
    work.restore(images)
    assert work.end() == ""
    assert writer.content(work.directory) == wanted


@pytest.mark.parametrize("kind", writer.KINDS)
def test_again_and_again(place, kind):
    """From a checkpoint after which the node did not run, twice; the first of these runs is lost, in its last step too."""
    wanted = undisturbed(place, kind)
    work = Work(place, kind)
    work.until(SAVED_AFTER + 1)
    images = work.save("end")
    work.lose()
    work.restore(images)
    work.until(STEPS - 1)
    work.lose()
    work.restore(images)
    assert work.end() == ""
    assert writer.content(work.directory) == wanted


# What others do to the files of a node that does not run.


def lines(*numbers):
    return "".join(map(writer.line, numbers))


def text_of(path):
    with open(path, encoding="ascii") as file:
        return file.read()


def saved(place, kind, *options):
    work = Work(place, kind)
    work.until(SAVED_AFTER)
    images = work.save("end", *options)
    work.lose()
    return work, images


def change(path, text, mode="a"):
    with open(path, mode, encoding="ascii") as file:
        file.write(text)


def aside(work):
    """What was kept, and the name."""
    (name,) = (each for each in os.listdir(work.directory) if ".aside-" in each)
    return text_of(work.path(name)), name


def test_somebody_else_has_added_something(place):
    """To a file that is written at a position: it would be overwritten."""
    work, images = saved(place, "w")
    change(work.path("log"), "not of the job\n")
    work.restore(images)
    said = work.end()
    kept, name = aside(work)
    assert kept == "not of the job\n"
    assert text_of(work.path("log")) == lines(*range(STEPS))
    assert f"'{work.path('log')}': it has grown since the checkpoint: it is as it was then, and what was added is in '{work.path(name)}'" in said
    about = os.stat(work.path(name))
    assert (about.st_uid, about.st_gid, about.st_mode & 0o777) == (nodes.USER, nodes.USER, 0o644)


def test_somebody_else_has_appended(place):
    """To a file to which the job appends, too: nothing has to be undone."""
    work, images = saved(place, "a")
    change(work.path("log"), "not of the job\n")
    work.restore(images)
    assert work.end() == ""
    assert text_of(work.path("log")) == lines(*range(SAVED_AFTER)) + "not of the job\n" + lines(*range(SAVED_AFTER, STEPS))


def test_somebody_else_has_edited(place):
    work, images = saved(place, "w")
    os.rename(work.path("log"), work.path("log~"))
    change(work.path("log"), "edited\n", "w")
    os.chown(work.path("log"), nodes.USER, nodes.USER)
    work.restore(images)
    said = work.end()
    kept, name = aside(work)
    assert kept == "edited\n"
    assert text_of(work.path("log")) == lines(*range(STEPS))
    assert text_of(work.path("log~")) == lines(*range(SAVED_AFTER))
    assert f"it has changed since the checkpoint: it is as it was then, and what it was now is in '{work.path(name)}'" in said


def test_a_file_of_another_user(place):
    work, images = saved(place, "w")
    os.unlink(work.path("log"))
    change(work.path("log"), lines(*range(SAVED_AFTER)), "w")
    os.chmod(work.path("log"), 0o644)
    with pytest.raises(nodes.Failed, match="its user may not open it as the program had it"):
        work.restore(images)
    assert text_of(work.path("log")) == lines(*range(SAVED_AFTER))


def test_a_link_to_a_file_of_another_user(place):
    work, images = saved(place, "w")
    os.unlink(work.path("log"))
    change(place.path("precious"), "root's\n", "w")
    os.symlink(place.path("precious"), work.path("log"))
    with pytest.raises(nodes.Failed):
        work.restore(images)
    assert text_of(place.path("precious")) == "root's\n"
    assert os.path.islink(work.path("log"))


@pytest.mark.parametrize("keep", [True, False])
def test_files_that_are_gone(place, keep):
    """With the directory. Of what was too large to be kept nothing can be made again."""
    work, images = saved(place, "w", *([] if keep else ["--largest-copy=10"]))
    os.rename(work.directory, place.path("gone"))
    if not keep:
        with pytest.raises(nodes.Failed, match="the file was there at the checkpoint"):
            work.restore(images)
        return
    work.restore(images)
    assert work.end() == ""
    assert text_of(work.path("log")) == lines(*range(STEPS))
    assert os.stat(work.directory).st_mode & 0o777 == 0o755
    assert text_of(place.path("gone/log")) == lines(*range(SAVED_AFTER))


def test_directories_that_are_gone(place):
    """In which the program works; nothing in them is open."""
    work = Work(place, "deleted")
    work.until(LOST_AFTER)
    images = work.save("end")
    work.lose()
    shutil.rmtree(work.directory)
    work.restore(images)
    work.end()
    assert os.stat(work.directory).st_mode & 0o777 == 0o755


@pytest.mark.parametrize("kind", ["w", "a", "rotated", "moved", "swapped", "both rotated"])
def test_too_large_to_be_kept(place, kind):
    """What was added is cut off all the same, if nothing else has changed."""
    wanted = undisturbed(place, kind)
    work, images = lost(place, kind, "--largest-copy=10")
    work.restore(images)
    assert work.end() == ""
    assert writer.content(work.directory) == wanted


@pytest.mark.parametrize("kind", ["in place", "truncated", "replaced"])
def test_lost_since_it_was_too_large(place, kind):
    work, images = lost(place, kind, "--largest-copy=10")
    before = writer.content(work.directory)
    work.restore(images)
    assert writer.content(work.directory) == before
    assert "log': it has changed since the checkpoint, and its" in (said := work.end()), said
    assert "bytes were too many to be kept: it stays as it is now" in said


def test_others_append_to_it(place):
    """Nobody knows whose lines those after the checkpoint are: all stay."""
    work = Work(place, "a")
    work.until(SAVED_AFTER)
    change(work.path("log"), "another job's\n")
    images = work.save()
    work.until(SAVED_AFTER + 1)
    change(work.path("log"), "another job's\n")
    work.lose()
    before = text_of(work.path("log"))
    work.restore(images)
    said = work.end()
    assert text_of(work.path("log")) == before + lines(*range(SAVED_AFTER, STEPS))
    assert "others write to it as well" in said


def test_another_has_it_open(place):
    work = Work(place, "a")
    work.until(SAVED_AFTER)
    images = work.save()
    work.until(SAVED_AFTER + 1)
    work.lose()
    before = text_of(work.path("log"))
    with open(work.path("log"), "a", encoding="ascii"):
        work.restore(images)
    assert "others write to it as well" in work.end()
    assert text_of(work.path("log")) == before + lines(*range(SAVED_AFTER, STEPS))


def test_another_job_has_it_open(place):
    """A later one, by the mark that its checkpoint has left: also of a file that is written at a position."""
    for first, second in (("w", "r+"), ("journal", "journal")):
        work = Work(place, first)
        work.until(SAVED_AFTER)
        images = work.save()
        work.until(SAVED_AFTER + 1)
        work.lose()
        other = Work(place, second, make=False)
        other.until(2)
        other.save("run", "--owner=two")
        other.lose()
        before = writer.content(work.directory)
        work.restore(images)
        work.lose()
        said = work.node.process.stderr.read()
        assert "others write to it as well" in said, said
        assert writer.content(work.directory) == before
        shutil.rmtree(work.directory)


def test_files_of_others_that_have_such_names(place):
    """As logs have that are rotated: these were not."""
    work, images = lost(place, "w")
    for name in ("log.17", "log.1", "log-journal.1"):
        change(work.path(name), name)
        os.chown(work.path(name), nodes.USER, nodes.USER)
    work.restore(images)
    work.end()
    assert [text_of(work.path(name)) for name in ("log.17", "log.1", "log-journal.1")] == ["log.17", "log.1", "log-journal.1"]
    assert text_of(work.path("log")) == lines(*range(STEPS))


@pytest.mark.parametrize("kind", ["rotated", "journal", "w"])
def test_a_directory_of_many_files(place, kind):
    """Too many to look for names in it: nothing is renamed or removed."""
    work = Work(place, kind)
    for number in range(5000):
        with open(work.path(f"file{number}"), "wb"):
            pass
    change(work.path("log.77"), "seven")
    work.until(SAVED_AFTER)
    images = work.save()
    work.until(LOST_AFTER)
    work.lose()
    for number in range(5000):
        os.unlink(work.path(f"file{number}"))
    work.restore(images)
    work.end()
    assert text_of(work.path("log.77")) == "seven"


@pytest.mark.parametrize("kind", ["journal", "wal", "persistent journal"])
def test_a_database_that_is_too_large(place, kind):
    """All of it stays as it is: no old journal beside a newer database."""
    work = Work(place, kind)
    work.until(6)
    images = work.save("run", "--largest-copy=3000")
    work.until(LOST_AFTER)
    work.lose()
    work.restore(images)
    said = work.end()
    assert "base': it is a database that was too large to be kept" in said or "base': it has changed since the checkpoint, and its" in said, said
    check, found = writer.content(work.directory)["base"]
    assert check == [("ok",)]
    assert {number for number, _ in found} == set(range(STEPS))


def test_a_directory_that_leads_elsewhere(place, monkeypatch):
    """By one of the links that the kernel follows without looking at names: to a directory of the worker's."""
    work, images = saved(place, "w")
    here = place.path("here")
    os.mkdir(here)
    os.chown(here, nodes.USER, nodes.USER)
    os.rename(work.directory, place.path("gone"))
    os.symlink("/proc/self/cwd", work.directory)
    monkeypatch.chdir(here)
    with pytest.raises(nodes.Failed):
        work.restore(images)
    assert os.listdir(here) == []


def test_what_is_cut_off_is_kept_if_that_is_wanted(place):
    work, images = lost(place, "w")
    work.restore(images, "--keep-aside=yes")
    work.end()
    assert aside(work)[0] == lines(*range(SAVED_AFTER, LOST_AFTER))
    assert text_of(work.path("log")) == lines(*range(STEPS))


def test_the_disk_is_full(place):
    """The restore fails, says of which file, and succeeds when there is room."""
    disk = place.path("files")
    os.mkdir(disk)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size=64k,mode=755,uid={nodes.USER},gid={nodes.USER}", "none", disk], check=True)
    try:
        work = Work(place, "truncated", make=False)
        work.until(SAVED_AFTER)
        images = work.save("end")
        work.lose()
        os.truncate(work.path("log"), 0)
        with open(work.path("filling"), "wb") as file, contextlib.suppress(OSError):
            while file.write(b"x" * 4096):
                file.flush()
        with pytest.raises(nodes.Failed, match="log.*No space left on device"):
            work.restore(images)
        os.unlink(work.path("filling"))
        work.restore(images)
        work.end()
        assert text_of(work.path("log")) == writer.line(STEPS - 1) * 4
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_table_that_somebody_has_changed(place):
    work, images = saved(place, "w")
    path = os.path.join(images, "written-files")
    with open(path, "rb") as file:
        good = file.read()
    for bad in (good[:-3], good[:8] + b"\xff" * 20, good.replace(b"/log", b"\0log"), b""):
        with open(path, "wb") as file:
            file.write(bad)
        with pytest.raises(nodes.Failed, match="written-files"):
            work.restore(images)
    assert text_of(work.path("log")) == lines(*range(SAVED_AFTER))
