"""pyfakefs's interface: what a test suite uses of it, and what it then sees."""

import os
import pathlib
import shutil
import unittest

import pytest
from rcuwalk import _patch
from rcuwalk import pyfakefs as compat
from rcuwalk.pyfakefs import FakeDirectory, FakeFile, Patcher, Pause, fs, fs_module  # noqa: F401

HERE = os.path.abspath(__file__)


def test_files_and_objects(fs):  # noqa: F811
    assert not os.path.exists(HERE) and os.getcwd() == "/"
    file = fs.create_file("/var/data/xx1.txt", contents="hello\n")
    assert isinstance(file, FakeFile) and open("/var/data/xx1.txt").read() == "hello\n"
    assert oct(os.stat("/var/data/xx1.txt").st_mode) == oct(file.st_mode) == "0o100644", "less the umask"
    assert (file.name, file.path, file.size, file.st_size) == ("xx1.txt", "/var/data/xx1.txt", 6, 6)
    assert (file.contents, file.byte_contents) == ("hello\n", b"hello\n")
    file.set_contents("other")
    file.st_mode, file.st_uid, file.st_mtime = 0o600, 7, 1000
    status = os.stat("/var/data/xx1.txt")
    assert (status.st_mode, status.st_uid, status.st_mtime, status.st_size) == (0o100600, 7, 1000.0, 5)
    assert fs.get_object("/var/data") == fs.resolve("/var/data/../data")
    assert fs.create_file("/bits", st_mode=0o100777, apply_umask=False).st_mode == 0o100777
    with pytest.raises(FileNotFoundError):
        fs.get_object("/none")
    with pytest.raises(FileNotFoundError):
        fs.create_file("/a/b", create_missing_dirs=False)


def test_directories_and_links(fs):  # noqa: F811
    made = fs.create_dir("/home/me/x", perm_bits=0o700)
    assert isinstance(made, FakeDirectory) and made.st_mode == 0o040700 and fs.isdir("/home/me")
    with pytest.raises(FileExistsError):
        fs.create_dir("/home/me/x")
    link = fs.create_symlink("/links/l", "../home/me")
    assert link.contents == "../home/me" and fs.islink("/links/l") and fs.resolve("/links/l").path == "/home/me"
    assert fs.resolve_path("/links/l/x/..") == "/home/me"
    fs.create_file("/home/me/f", contents="abc")
    fs.create_link("/home/me/f", "/home/g")
    assert fs.get_object("/home/g").st_nlink == 2
    assert sorted(fs.get_object("/home/me").entries) == ["f", "x"] and fs.get_object("/home").size == 6
    assert fs.get_object("/home/me").get_entry("f").size == 3
    fs.get_object("/home").remove_entry("me")
    assert os.listdir("/home") == ["g"]
    fs.cwd = "/home"
    assert os.path.exists("g") and fs.cwd == os.getcwd()


def test_side_effects_and_large_files(fs):  # noqa: F811
    seen = []
    fs.create_file("/f", side_effect=lambda file: seen.append(file.contents))
    with open("/f", "w") as file:
        file.write("one")
    with open("/f") as file:
        assert file.read() == "one"
    pathlib.Path("/f").write_text("two")
    assert seen == ["one", "two"]
    large = fs.create_file("/large", st_size=1 << 40)
    assert large.is_large_file() and os.path.getsize("/large") == 1 << 40
    large.set_large_file_size(10)
    assert large.st_size == 10


def test_disks(fs):  # noqa: F811
    fs.set_disk_usage(1 << 20)
    assert fs.get_disk_usage().total == shutil.disk_usage("/").total == 1 << 20
    with pytest.raises(OSError, match="No space"):
        pathlib.Path("/f").write_bytes(bytes(2 << 20))
    fs.add_mount_point("/mnt", total_size=8192)
    assert fs.is_mount_point("/mnt") and not fs.is_mount_point("/") is False
    assert os.stat("/mnt").st_dev != os.stat("/").st_dev
    with pytest.raises(FileExistsError):
        fs.add_mount_point("/mnt")
    pathlib.Path("/mnt/f").write_bytes(bytes(8192))
    assert fs.get_disk_usage("/mnt") == (8192, 8192, 0)
    with pytest.raises(OSError):
        fs.set_disk_usage(4096, "/mnt")
    fs.set_disk_usage(1 << 20, "/mnt/f")
    assert fs.get_disk_usage("/mnt").free == (1 << 20) - 8192


def test_the_machines_files(fs):  # noqa: F811
    fs.add_real_file(HERE)
    assert "pyfakefs's interface" in open(HERE).readline()
    with pytest.raises(OSError):
        open(HERE, "a")
    fs.add_real_directory(os.path.dirname(HERE), lazy_read=True, target_path="/copy", read_only=False)
    assert os.path.exists("/copy/rows.py")
    fs.add_package_metadata("pytest")
    import importlib.metadata

    assert importlib.metadata.version("pytest")
    with Pause(fs):
        assert os.path.exists(os.path.dirname(os.__file__))
    assert not os.path.exists(os.path.dirname(os.__file__) + "/os.py")


def test_users_and_reset(fs):  # noqa: F811
    fs.create_file("/secret", st_mode=0o100600)
    compat.set_uid(1000)
    with pytest.raises(PermissionError):
        open("/secret")
    assert fs.create_file("/mine", st_mode=0o100600).st_uid == 1000 and open("/mine").read() == ""
    compat.reset_ids()
    open("/secret").close()
    fs.reset()
    assert not os.path.exists("/secret") and os.path.isdir("/tmp")
    with pytest.raises(NotImplementedError, match="as Linux does"):
        fs.is_windows_fs = True


def test_patcher_and_pause():
    with Patcher(allow_root_user=False) as patcher:
        assert os.getuid() == 1 and patcher.is_patching
        patcher.fs.create_file("/f")
        patcher.pause()
        assert os.path.exists(HERE) and not patcher.is_patching
        patcher.resume()
        assert os.path.exists("/f")
    assert os.path.exists(HERE) and not _patch._stack
    with pytest.warns(UserWarning, match="real_files"):
        Patcher(additional_skip_names=["x"])


class Example(compat.TestCase):
    def setUp(self):
        self.setUpPyfakefs()

    def test_example(self):
        self.fs.create_file("/f", contents="x")
        self.assertTrue(os.path.exists("/f"))
        self.assertFalse(os.path.exists(HERE))


def test_the_unittest_class_cleans_up():
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(Example).run(result)
    assert result.testsRun == 1 and result.wasSuccessful(), result.errors + result.failures
    assert os.path.exists(HERE)


@pytest.mark.parametrize("fs", [[None, None, None, False]], indirect=True)
def test_parameters_of_the_patcher(fs):  # noqa: F811
    assert os.getuid() == 1


class TestScopes:
    def test_first(self, fs_module):  # noqa: F811
        fs_module.create_file("/kept")

    def test_second(self, fs_module):  # noqa: F811
        assert os.path.exists("/kept")
