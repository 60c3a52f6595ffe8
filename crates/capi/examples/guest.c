/* An emulator's view: a guest with memory of its own, that only the callbacks reach, and with processes. */
#include <errno.h>
#include <rcuwalk.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

/* The guest's memory begins at this address. */
#define BASE 0x400000u

struct guest {
    unsigned char memory[0x4000];
    rcuwalk_handle task;
    int reentered;
};

static int guest_read(void *user, void *to, uint64_t from, size_t len)
{
    struct guest *guest = user;
    if (from < BASE || from - BASE > sizeof guest->memory || len > sizeof guest->memory - (from - BASE))
        return -1;
    memcpy(to, guest->memory + (from - BASE), len);
    /* The task is in the middle of a call: nobody else can have it now. */
    guest->reentered = rcuwalk_close(guest->task, 0);
    return 0;
}

static int guest_write(void *user, uint64_t to, const void *from, size_t len)
{
    struct guest *guest = user;
    if (to < BASE || to - BASE > sizeof guest->memory || len > sizeof guest->memory - (to - BASE))
        return -1;
    memcpy(guest->memory + (to - BASE), from, len);
    return 0;
}

static struct guest guest;
static const struct rcuwalk_memory memory = {&guest, guest_read, guest_write};

static int64_t call(uint64_t number, uint64_t a0, uint64_t a1, uint64_t a2)
{
    return rcuwalk_syscall(guest.task, &memory, number, a0, a1, a2, 0, 0, 0);
}

static int check(const char *what, int64_t answer, int64_t wanted)
{
    printf("%-40s %lld\n", what, (long long)answer);
    return answer != wanted;
}

int main(void)
{
    struct rcuwalk_options options = {.capacity = 4096};
    rcuwalk_handle vfs = rcuwalk_create(&options);
    guest.task = rcuwalk_task_create(vfs, NULL);
    memcpy(guest.memory, "/bin\0/bin/tool", 15);
    const uint64_t dir = BASE, tool = BASE + 5, end = BASE + sizeof guest.memory;
    int wrong = 0;

    wrong |= check("mkdir", call(SYS_mkdir, dir, 0755, 0), 0);
    wrong |= check("a call from within a callback", guest.reentered, -EBUSY);
    wrong |= check("a name outside of the guest", call(SYS_mkdir, end, 0755, 0), -EFAULT);
    wrong |= check("a host address", call(SYS_mkdir, (uintptr_t)"/host", 0755, 0), -EFAULT);
    wrong |= check("creat", call(SYS_creat, tool, 0755, 0), 0);
    wrong |= check("write", call(SYS_write, 0, BASE, 4), 4);
    wrong |= check("fstat to the end of memory", call(SYS_fstat, 0, end - 143, 0), -EFAULT);
    wrong |= check("fstat", call(SYS_fstat, 0, end - 144, 0), 0);

    struct rcuwalk_event event = {0};
    int64_t pid = call(SYS_fork, 0, 0, 0);
    wrong |= check("fork left a task", rcuwalk_task_event(guest.task, &event), 0);
    if (event.kind != RCUWALK_EVENT_CLONED)
        return 1;
    wrong |= check("whose number it answered", rcuwalk_syscall(event.handle, &memory, SYS_getpid, 0, 0, 0, 0, 0, 0), pid);
    wrong |= check("the child exits", rcuwalk_exit(event.handle, 7), 0);
    rcuwalk_handle child = event.handle;
    wrong |= check("and says so", rcuwalk_task_event(child, &event), 0);
    if (event.kind != RCUWALK_EVENT_EXITED || event.status != 7)
        return 1;
    wrong |= check("a task that has exited makes no calls", rcuwalk_close(child, 0), -ESRCH);
    wrong |= check("the parent closes the tool", call(SYS_close, 0, 0, 0), 0);
    wrong |= check("which is no program", call(SYS_execve, tool, 0, 0), -ENOEXEC);

    rcuwalk_handle all[] = {child, guest.task, vfs};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        wrong |= rcuwalk_destroy(all[i]) != 0;
    return wrong;
}
