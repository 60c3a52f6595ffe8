/* A file system, two users, and what the rules say: the interface in one page. */
#include <errno.h>
#include <fcntl.h>
#include <rcuwalk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ends the program unless a call answered what it should. */
static void expect(const char *what, int64_t answer, int64_t wanted)
{
    printf("%-52s %s\n", what, answer < 0 ? strerror((int)-answer) : "ok");
    if (answer != wanted) {
        fprintf(stderr, "%s: %lld instead of %lld\n", what, (long long)answer, (long long)wanted);
        exit(1);
    }
}

/* A task of a user who has just logged in. */
static rcuwalk_handle login(rcuwalk_handle vfs, uint32_t uid, uint32_t gid, const uint32_t *groups, size_t n)
{
    struct rcuwalk_cred cred;
    rcuwalk_cred_init(&cred, uid, gid);
    cred.groups = groups;
    cred.ngroups = n;
    rcuwalk_handle task = rcuwalk_task_create(vfs, &cred);
    if (task < 0) {
        fprintf(stderr, "no task: %s\n", strerror((int)-task));
        exit(1);
    }
    return task;
}

int main(void)
{
    struct rcuwalk_options options = {.capacity = 4096, .protected_symlinks = 1};
    rcuwalk_handle vfs = rcuwalk_create(&options);
    rcuwalk_handle root = rcuwalk_task_create(vfs, NULL);
    if (vfs < 0 || root < 0)
        return 1;

    expect("root makes /srv", rcuwalk_mkdir(root, "/srv", 0755), 0);
    expect("root makes /srv/plans", rcuwalk_mkdir(root, "/srv/plans", 0750), 0);
    expect("root gives it to group 27", rcuwalk_chown(root, "/srv/plans", 0, 27), 0);
    expect("and what is made in it, too", rcuwalk_chmod(root, "/srv/plans", 02750), 0);
    int fd = rcuwalk_open(root, "/srv/plans/a", O_CREAT | O_WRONLY, 0640);
    expect("root writes a plan", rcuwalk_write(root, fd, "plan\n", 5), 5);
    expect("and closes it", rcuwalk_close(root, fd), 0);

    const uint32_t staff[] = {27};
    rcuwalk_handle member = login(vfs, 1000, 1000, staff, 1);
    rcuwalk_handle stranger = login(vfs, 1001, 1001, NULL, 0);
    struct stat st = {0};
    char text[16] = {0};

    expect("a member looks", rcuwalk_stat(member, "/srv/plans/a", &st), 0);
    printf("    mode %o, owner %u:%u, %lld bytes\n", st.st_mode, st.st_uid, st.st_gid, (long long)st.st_size);
    fd = rcuwalk_open(member, "/srv/plans/a", O_RDONLY, 0);
    expect("a member reads", rcuwalk_read(member, fd, text, sizeof text), 5);
    expect("a member writes", rcuwalk_open(member, "/srv/plans/a", O_WRONLY, 0), -EACCES);
    expect("a stranger looks", rcuwalk_stat(stranger, "/srv/plans/a", &st), -EACCES);
    expect("a stranger makes a directory", rcuwalk_mkdir(stranger, "/srv/mine", 0755), -EACCES);
    expect("a member passes the file on, by descriptor", rcuwalk_fchmod(member, fd, 0644), -EPERM);

    rcuwalk_handle child = rcuwalk_task_fork(member);
    expect("a child has the descriptor as well", rcuwalk_lseek(child, fd, 0, SEEK_SET), 0);
    expect("root in a child becomes somebody", rcuwalk_setuid(root, 1001), 0);
    expect("and does not come back", rcuwalk_setuid(root, 0), -EPERM);

    char archive[] = "/tmp/rcuwalk-tour-XXXXXX";
    int host = mkstemp(archive);
    if (host < 0)
        return 1;
    expect("the tree is saved", rcuwalk_save(vfs, archive), 0);
    rcuwalk_handle copy = rcuwalk_create(&options);
    expect("and imported elsewhere", rcuwalk_import(copy, archive, RCUWALK_IMPORT_CONTENTS), 0);
    unlink(archive);
    close(host);
    rcuwalk_handle again = login(copy, 1000, 1000, staff, 1);
    fd = rcuwalk_open(again, "/srv/plans/a", O_RDONLY, 0);
    memset(text, 0, sizeof text);
    expect("where a member reads the plan", rcuwalk_read(again, fd, text, sizeof text), 5);
    if (strcmp(text, "plan\n") != 0)
        return 1;

    rcuwalk_handle all[] = {child, stranger, member, root, vfs, again, copy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (rcuwalk_destroy(all[i]) != 0)
            return 1;
    expect("what is destroyed is gone", rcuwalk_mkdir(root, "/x", 0755), -ESRCH);
    return 0;
}
