/* What must not harm: null pointers, dangling and invented handles, threads on one task, fork, random registers. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rcuwalk.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
            exit(1); \
        } \
    } while (0)

static const struct rcuwalk_options options = {.capacity = 4096, .size_limit = 1 << 20};
static rcuwalk_handle vfs, task;

static void pointers(void)
{
    struct stat st = {0};
    CHECK(rcuwalk_open(task, NULL, 0, 0) == -EFAULT);
    CHECK(rcuwalk_open(task, (const char *)8, 0, 0) == -EFAULT);
    CHECK(rcuwalk_stat(task, "/", (struct stat *)8) == -EFAULT);
    CHECK(rcuwalk_stat(task, "/", &st) == 0);
    CHECK(rcuwalk_create((const struct rcuwalk_options *)8) == -EFAULT);
    CHECK(rcuwalk_task_create(vfs, (const struct rcuwalk_cred *)8) == -EFAULT);
    CHECK(rcuwalk_cred_init(NULL, 0, 0) == -EFAULT);
    CHECK(rcuwalk_task_event(task, NULL) == -EFAULT);
    CHECK(rcuwalk_import(vfs, NULL, 0) == -EFAULT);
    CHECK(rcuwalk_import(vfs, "", 0) == -ENOENT);
    CHECK(rcuwalk_import(vfs, "/nowhere/at/all", 0) == -ENOENT);
    CHECK(rcuwalk_import(vfs, "/dev/null", 0) == -EINVAL);
    CHECK(rcuwalk_import(vfs, "/", 1u << 31) == -EINVAL);
    CHECK(rcuwalk_save(vfs, "/nowhere/at/all") == -ENOENT);
    char text[16] = {0};
    CHECK(rcuwalk_error_text(text, sizeof text) > 15 && strlen(text) == 15);
    CHECK(rcuwalk_error_text(NULL, 0) > 15);
    /* A NUL ends a name, wherever it stands; what follows does not matter. */
    CHECK(rcuwalk_mkdir(task, "/nul\0/x", 0755) == 0 && rcuwalk_rmdir(task, "/nul") == 0);
    struct rcuwalk_memory nothing = {0};
    CHECK(rcuwalk_syscall(task, &nothing, SYS_mkdir, (uintptr_t)"/x", 0755, 0, 0, 0, 0) == -EFAULT);
    CHECK(rcuwalk_syscall(task, (const struct rcuwalk_memory *)16, SYS_getpid, 0, 0, 0, 0, 0, 0) == -EFAULT);
    CHECK(rcuwalk_syscall(task, RCUWALK_TRUSTED, SYS_mkdir, (uintptr_t)"/x", 0755, 0, 0, 0, 0) == 0);
    CHECK(rcuwalk_syscall(task, RCUWALK_TRUSTED, SYS_rmdir, (uintptr_t)"/x", 0, 0, 0, 0, 0) == 0);
    CHECK(rcuwalk_syscall(task, RCUWALK_TRUSTED, SYS_rmdir, 0, 0, 0, 0, 0, 0) == -EFAULT);
}

static void handles(void)
{
    rcuwalk_handle gone = rcuwalk_task_create(vfs, NULL);
    CHECK(gone > 0 && rcuwalk_destroy(gone) == 0);
    CHECK(rcuwalk_destroy(gone) == -ESRCH);
    CHECK(rcuwalk_getuid(gone) == -ESRCH);
    CHECK(rcuwalk_task_fork(gone) == -ESRCH);
    CHECK(rcuwalk_mkdir(vfs, "/x", 0755) == -EINVAL);
    CHECK(rcuwalk_task_create(task, NULL) == -EINVAL);
    CHECK(rcuwalk_exec_string(task, 0, 0, NULL, 0) == -EINVAL);
    const rcuwalk_handle invented[] = {0, -1, 1, 4096, INT64_MAX, INT64_MIN, task + 1, task ^ ((int64_t)1 << 40)};
    for (size_t i = 0; i < sizeof invented / sizeof *invented; i++) {
        CHECK(rcuwalk_mkdir(invented[i], "/x", 0755) == -ESRCH);
        CHECK(rcuwalk_destroy(invented[i]) == -ESRCH);
    }
}

/* Makes and removes names by one task, or by one that is taken away meanwhile. */
static void *busy(void *name)
{
    for (int i = 0; i < 500; i++) {
        CHECK(rcuwalk_mkdir(task, name, 0755) == 0);
        CHECK(rcuwalk_rmdir(task, name) == 0);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[4];
    const char *names[] = {"/a", "/b", "/c", "/d"};
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&all[i], NULL, busy, (void *)names[i]) == 0);
    /* While they run, children of fork have a file system of their own that nobody is in the middle of. */
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            int made = rcuwalk_mkdir(task, "/child", 0755);
            rcuwalk_handle other = rcuwalk_create(&options);
            _exit(made == 0 && other > 0 && rcuwalk_destroy(other) == 0 ? 0 : 1);
        }
        int status = 1;
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    CHECK(rcuwalk_access(task, "/child", F_OK) == -ENOENT);
}

static int forking_read(void *user, void *to, uint64_t from, size_t len)
{
    (void)from;
    memset(to, 0, len);
    *(pid_t *)user = fork();
    return 0;
}

/* Fork from within a call: the child gets out of the call, and makes no other. */
static void fork_in_callback(void)
{
    pid_t pid = -1;
    struct rcuwalk_memory memory = {&pid, forking_read, NULL};
    int64_t answer = rcuwalk_syscall(task, &memory, SYS_rmdir, 1, 0, 0, 0, 0, 0);
    if (pid == 0)
        _exit(answer == -ENOENT && rcuwalk_access(task, "/", F_OK) == -EIO ? 0 : 1);
    int status = 1;
    CHECK(answer == -ENOENT && pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    CHECK(rcuwalk_access(task, "/", F_OK) == 0);
}

static uint64_t random_word(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

/* Memory of which every other read fails, and nothing is written. */
static int random_read(void *user, void *to, uint64_t from, size_t len)
{
    (void)user;
    (void)from;
    if (len > 4096 || random_word() & 1)
        return -1;
    for (size_t i = 0; i < len; i++)
        ((char *)to)[i] = "a/b.\0\1"[random_word() % 6];
    return 0;
}

static int no_write(void *user, uint64_t to, const void *from, size_t len)
{
    (void)user;
    (void)to;
    (void)from;
    (void)len;
    return random_word() & 1;
}

static void registers(void)
{
    const struct rcuwalk_memory memory = {NULL, random_read, no_write};
    rcuwalk_handle victim = rcuwalk_task_create(vfs, NULL);
    for (int i = 0; i < 20000; i++) {
        uint64_t a[6], number = random_word() % 480;
        for (int j = 0; j < 6; j++)
            a[j] = random_word() >> random_word() % 64;
        int64_t answer = rcuwalk_syscall(victim, &memory, number, a[0], a[1], a[2], a[3], a[4], a[5]);
        CHECK(answer >= -4095);
        struct rcuwalk_event event;
        CHECK(rcuwalk_task_event(victim, &event) == 0);
        if (event.kind == RCUWALK_EVENT_CLONED)
            CHECK(rcuwalk_destroy(event.handle) == 0);
        if (event.kind == RCUWALK_EVENT_EXITED || number == SYS_chroot) {
            CHECK(rcuwalk_destroy(victim) == 0);
            victim = rcuwalk_task_create(vfs, NULL);
        }
    }
    CHECK(rcuwalk_destroy(victim) == 0);
    struct stat st = {0};
    CHECK(rcuwalk_stat(task, "/", &st) == 0 && S_ISDIR(st.st_mode));
}

int main(void)
{
    vfs = rcuwalk_create(&options);
    task = rcuwalk_task_create(vfs, NULL);
    CHECK(vfs > 0 && task > 0);
    pointers();
    handles();
    threads();
    fork_in_callback();
    registers();
    CHECK(rcuwalk_destroy(task) == 0 && rcuwalk_destroy(vfs) == 0);
    printf("nothing was harmed\n");
    return 0;
}
