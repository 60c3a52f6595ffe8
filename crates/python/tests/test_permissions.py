"""What other fake file systems get wrong: which user may do what, also when root runs the tests."""

import errno
import os
import pathlib
import shutil
import stat

import pytest

from rcuwalk._fixture import acl_value


@pytest.fixture
def fs(rcuwalk_fs):
    return rcuwalk_fs


def refused(call, *args):
    with pytest.raises(PermissionError) as raised:
        call(*args)
    return raised.value.errno


def test_mode_000_stops_everybody_but_root(fs):
    fs.create_file("/f", "x", 0o000, uid=1000)
    assert open("/f").read() == "x"
    with fs.as_user(1000):
        assert refused(open, "/f") == errno.EACCES
        assert not os.access("/f", os.R_OK) and os.access("/f", os.F_OK)
        os.chmod("/f", 0o400)
        assert open("/f").read() == "x"
    with fs.as_user(0, caps="none"):
        assert refused(open, "/f") == errno.EACCES


def test_mode_000_directory_as_root(fs):
    fs.create_file("/d/f", "x")
    fs.chmod("/d", 0o000)
    assert os.listdir("/d") == ["f"] and open("/d/f").read() == "x"
    shutil.rmtree("/d")
    assert not os.path.exists("/d")


def test_root_may_not_execute_what_nobody_may(fs):
    fs.create_file("/f", "", 0o644)
    assert not os.access("/f", os.X_OK)
    fs.chmod("/f", 0o001)
    assert os.access("/f", os.X_OK)


def test_reading_a_directory_is_not_searching_it(fs):
    fs.create_file("/d/f", "x", 0o666)
    fs.chmod("/d", 0o744)
    with fs.as_user(1000):
        assert os.listdir("/d") == ["f"]
        refused(open, "/d/f")
        refused(os.stat, "/d/f")
        assert not os.path.exists("/d/f")
    fs.chmod("/d", 0o711)
    with fs.as_user(1000):
        refused(os.listdir, "/d")
        assert open("/d/f").read() == "x"


def test_search_is_needed_in_every_directory_above(fs):
    fs.create_file("/a/b/c/f", "x", 0o666)
    fs.chmod("/a/b", 0o750)
    with fs.as_user(1000):
        refused(open, "/a/b/c/f")
        refused(os.stat, "/a/b/c")
        assert refused(os.listdir, "/a/b/c") == errno.EACCES
    with fs.as_user(1000, groups=[0]):
        assert open("/a/b/c/f").read() == "x"


def test_an_open_directory_keeps_its_door(fs):
    fs.create_file("/a/b/f", "x", 0o666)
    fs.chmod("/a/b", 0o777)
    fd = os.open("/a/b", os.O_RDONLY)
    fs.chmod("/a", 0o700)
    with fs.as_user(1000):
        refused(os.stat, "/a/b/f")
        assert os.stat("f", dir_fd=fd).st_size == 1


def test_the_class_is_chosen_once(fs):
    # The owner has the owner's bits, even where those of others would give more.
    fs.create_file("/f", "x", 0o077, uid=1000, gid=100)
    with fs.as_user(1000, 100):
        refused(open, "/f")
    with fs.as_user(1001, 100):
        assert open("/f").read() == "x"
    fs.chmod("/f", 0o707)
    with fs.as_user(1001, 100):
        refused(open, "/f")
    with fs.as_user(1002, 102):
        assert open("/f").read() == "x"


def test_supplementary_groups_count(fs):
    fs.create_file("/f", "x", 0o640, gid=50)
    with fs.as_user(1000, 1000, groups=[49, 50]):
        assert open("/f").read() == "x"
        refused(open, "/f", "a")
    with fs.as_user(1000, 1000, groups=[49]):
        refused(open, "/f")


def test_removing_needs_the_directory_not_the_file(fs):
    fs.create_file("/d/f", "", 0o000)
    fs.chown("/d", 1000)
    with fs.as_user(1000):
        os.remove("/d/f")
    fs.create_file("/e/f", "", 0o666)
    with fs.as_user(1000):
        refused(os.remove, "/e/f")
        refused(os.rename, "/e/f", "/e/g")
        refused(open, "/e/new", "w")


def test_sticky_directories(fs):
    fs.create_file("/tmp/mine", uid=1000)
    fs.create_file("/tmp/yours", "", 0o666, uid=1001)
    with fs.as_user(1000):
        os.remove("/tmp/mine")
        assert refused(os.remove, "/tmp/yours") == errno.EPERM
        assert refused(os.rename, "/tmp/yours", "/tmp/taken") == errno.EPERM


def test_only_the_owner_changes_the_mode(fs):
    fs.create_file("/f", "", 0o666, uid=1000)
    with fs.as_user(1001):
        assert refused(os.chmod, "/f", 0o777) == errno.EPERM
        assert refused(os.utime, "/f", (1, 1)) == errno.EPERM
        os.utime("/f")
    with fs.as_user(1001, caps="CAP_FOWNER"):
        os.chmod("/f", 0o600)


def test_nobody_gives_files_away(fs):
    fs.create_file("/f", "", 0o600, uid=1000, gid=1000)
    with fs.as_user(1000, groups=[50]):
        assert refused(os.chown, "/f", 1001, -1) == errno.EPERM
        assert refused(os.chown, "/f", -1, 51) == errno.EPERM
        os.chown("/f", -1, 50)
    assert os.stat("/f").st_gid == 50


def test_set_id_bits_fall(fs):
    fs.create_file("/f", "", 0o6755, uid=1000, gid=1000)
    with fs.as_user(1000):
        with open("/f", "a") as file:
            file.write("x")
    assert stat.S_IMODE(os.stat("/f").st_mode) == 0o755
    fs.chmod("/f", 0o6755)
    os.chown("/f", 1001, 1001)
    assert stat.S_IMODE(os.stat("/f").st_mode) == 0o755


def test_set_gid_directories_pass_their_group_on(fs):
    fs.create_dir("/shared", 0o2777, gid=50)
    with fs.as_user(1000):
        os.mkdir("/shared/sub")
        with open("/shared/f", "w"):
            pass
    assert os.stat("/shared/f").st_gid == 50
    sub = os.stat("/shared/sub")
    assert sub.st_gid == 50 and sub.st_mode & stat.S_ISGID


def test_new_files_belong_to_their_maker(fs):
    with fs.as_user(1000, 100):
        pathlib.Path("/tmp/f").touch()
    assert (os.stat("/tmp/f").st_uid, os.stat("/tmp/f").st_gid) == (1000, 100)


def test_access_lists_are_enforced(fs):
    fs.create_file("/f", "x", 0o600)
    fs.set_acl("/f", "u::rw-,u:1000:r--,g::---,g:50:rw-,m::rw-,o::---")
    with fs.as_user(1000):
        assert open("/f").read() == "x"
        refused(open, "/f", "a")
    with fs.as_user(1001, groups=[50]):
        open("/f", "a").close()
    with fs.as_user(1001):
        refused(open, "/f")
    # The mask is what chmod calls the group's bits.
    assert stat.S_IMODE(os.stat("/f").st_mode) == 0o660
    os.chmod("/f", 0o640)
    with fs.as_user(1001, groups=[50]):
        refused(open, "/f", "a")
        assert open("/f").read() == "x"


def test_a_named_user_has_no_help_from_the_groups(fs):
    fs.create_file("/f", "x", 0o600)
    fs.set_acl("/f", "u::rw-,u:1000:---,g::r--,g:50:r--,m::r--,o::r--")
    with fs.as_user(1000, 50):
        refused(open, "/f")
    with fs.as_user(1001, 50):
        assert open("/f").read() == "x"


def test_default_lists_are_inherited(fs):
    fs.create_dir("/d", 0o777)
    fs.set_acl("/d", "u::rwx,u:1000:r-x,g::---,m::rwx,o::---", default=True)
    os.mkdir("/d/sub")
    fs.create_file("/d/sub/f", "x")
    assert os.getxattr("/d/sub", "system.posix_acl_default") == acl_value("u::rwx,u:1000:r-x,g::---,m::rwx,o::---")
    with fs.as_user(1000):
        assert os.listdir("/d/sub") == ["f"]
    with fs.as_user(1001):
        refused(os.listdir, "/d/sub")


def test_capabilities_one_by_one(fs):
    fs.create_file("/d/f", "x", 0o600)
    fs.chmod("/d", 0o700)
    with fs.as_user(1000, caps="CAP_DAC_READ_SEARCH"):
        assert open("/d/f").read() == "x"
        refused(open, "/d/f", "w")
    with fs.as_user(1000, caps=["CAP_DAC_OVERRIDE"]):
        open("/d/f", "w").close()
        assert refused(os.chmod, "/d/f", 0o644) == errno.EPERM
    with fs.as_user(1000, caps="chown"):
        refused(open, "/d/f")


def test_becoming_another_user_by_hand(fs):
    fs.create_file("/f", "x", 0o600)
    os.setegid(1000)
    os.seteuid(1000)
    refused(open, "/f")
    # access(2) asks for the real user, who is still root.
    assert os.access("/f", os.R_OK) and not os.access("/f", os.R_OK, effective_ids=True)
    os.seteuid(0)
    assert open("/f").read() == "x"
    os.setgroups([])
    os.setresgid(1000, 1000, 1000)
    os.setresuid(1000, 1000, 1000)
    assert refused(os.seteuid, 0) == errno.EPERM
    assert (os.getuid(), os.geteuid(), os.getgid(), os.getgroups()) == (1000, 1000, 1000, [])


def test_makedirs_and_copytree_as_a_user(fs):
    fs.home("/home/me", 1000)
    fs.create_file("/etc/skel/rc", "x", 0o644)
    with fs.as_user(1000):
        os.makedirs("/home/me/a/b/c")
        shutil.copytree("/etc/skel", "/home/me/skel")
        refused(os.makedirs, "/srv/a/b")
        refused(shutil.copytree, "/etc/skel", "/etc/other")
    assert os.stat("/home/me/skel/rc").st_uid == 1000


def test_rmtree_of_what_is_not_mine(fs):
    fs.create_file("/tmp/d/f", uid=1000)
    with fs.as_user(1000):
        refused(shutil.rmtree, "/tmp/d")
    assert os.path.exists("/tmp/d/f")


def test_a_read_only_tree_is_read_only_for_root(fs):
    fs.add_real_directory(os.path.dirname(__file__), target_path="/ro")
    for call in (lambda: open("/ro/new", "w"), lambda: os.remove("/ro/rows.py"), lambda: os.chmod("/ro/rows.py", 0o777)):
        with pytest.raises(OSError) as raised:
            call()
        assert raised.value.errno == errno.EROFS


def test_hard_links_to_what_is_not_mine():
    from rcuwalk import Cred, Vfs

    vfs = Vfs(protected_hardlinks=True)
    root = vfs.task()
    root.write_bytes("/secret", b"", 0o600)
    root.mkdir("/tmp", 0o777)
    root.chmod("/tmp", 0o1777)
    assert refused(vfs.task(Cred(1000)).link, "/secret", "/tmp/mine") == errno.EPERM
