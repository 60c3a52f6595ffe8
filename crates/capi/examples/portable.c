/* A program written against syscall(2): once for the kernel, once, with ON_RCUWALK, for the engine. Only one function is
 * another. Run in an empty directory, both print the same. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifdef ON_RCUWALK
#include <rcuwalk.h>

static rcuwalk_handle task;

/* syscall(2), on the engine. */
static long engine_syscall(long number, ...)
{
    uint64_t a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, unsigned long);
    va_end(args);
    int64_t answer = rcuwalk_syscall(task, NULL, (uint64_t)number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (answer < 0) {
        errno = (int)-answer;
        return -1;
    }
    return (long)answer;
}
/* A variable argument that is not there is not read: the rest is filled up. */
#define syscall(...) engine_syscall(__VA_ARGS__, 0L, 0L, 0L, 0L, 0L, 0L)
#endif

static int line;

static void show(const char *what, long answer)
{
    if (answer < 0)
        printf("%2d %-28s %s\n", ++line, what, strerror(errno));
    else
        printf("%2d %-28s %ld\n", ++line, what, answer);
}

static void look(const char *path)
{
    struct stat st = {0};
    long answer = syscall(SYS_newfstatat, (long)AT_FDCWD, path, &st, (long)AT_SYMLINK_NOFOLLOW);
    show(path, answer);
    if (answer == 0)
        printf("   mode %o links %lu size %lld\n", st.st_mode, (unsigned long)st.st_nlink,
               S_ISDIR(st.st_mode) ? 0LL : (long long)st.st_size);
}

static void work(void)
{
    char text[8] = {0};
    struct iovec parts[2] = {{text, 3}, {text + 4, 3}};
    show("umask", syscall(SYS_umask, 022L));
    show("mkdir d", syscall(SYS_mkdir, "d", 0777L));
    show("mkdir d again", syscall(SYS_mkdir, "d", 0777L));
    long fd = syscall(SYS_openat, (long)AT_FDCWD, "d/f", (long)(O_CREAT | O_RDWR), 0666L);
    show("write", syscall(SYS_write, fd, "abcdef", 6L));
    show("pread beyond", syscall(SYS_pread64, fd, text, 8L, 100L));
    show("preadv", syscall(SYS_preadv, fd, parts, 2L, 0L, 0L));
    printf("   %s %s\n", text, text + 4);
    show("write from nowhere", syscall(SYS_write, fd, 8L, 1L));
    show("symlink", syscall(SYS_symlink, "d/f", "l"));
    show("link", syscall(SYS_linkat, (long)AT_FDCWD, "l", (long)AT_FDCWD, "h", (long)AT_SYMLINK_FOLLOW));
    show("truncate", syscall(SYS_truncate, "h", 3L));
    show("rename onto a directory", syscall(SYS_rename, "h", "d"));
    show("rename below itself", syscall(SYS_rename, "d", "d/d"));
    show("rmdir of a full one", syscall(SYS_rmdir, "d"));
    show("open through a file", syscall(SYS_open, "h/x", 0L, 0L));
    show("open nowhere", syscall(SYS_open, 8L, 0L, 0L));
    show("a name of 256", syscall(SYS_access,
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
        "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", 0L));
    look("d");
    look("d/f");
    look("l");
    look("missing");
    show("unlink", syscall(SYS_unlink, "h"));
    show("unlink l", syscall(SYS_unlink, "l"));
    show("unlink d/f", syscall(SYS_unlink, "d/f"));
    show("fsync of what is left", syscall(SYS_fsync, fd));
    show("close", syscall(SYS_close, fd));
    show("close again", syscall(SYS_close, fd));
    show("rmdir d", syscall(SYS_rmdir, "d"));
}

int main(void)
{
#ifdef ON_RCUWALK
    struct rcuwalk_options options = {.capacity = 4096};
    rcuwalk_handle vfs = rcuwalk_create(&options);
    task = rcuwalk_task_create(vfs, NULL);
    if (vfs < 0 || task < 0)
        return 1;
    work();
    return rcuwalk_destroy(task) || rcuwalk_destroy(vfs);
#else
    work();
    return 0;
#endif
}
