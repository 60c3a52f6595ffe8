/* rcuwalk: the Linux pathname layer as a library. See rcuwalk(3).
 *
 * Functions return 0 or more, or a negated error number: -ENOENT and so on, from -4095 to -1. They do not touch errno.
 * Handles are numbers; one that names nothing (any more) is -ESRCH. Every function may be called from any thread.
 *
 * Written by cbindgen from crates/capi/src: change it there. */

#ifndef RCUWALK_H
#define RCUWALK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
struct iovec;
struct mount_attr;
struct open_how;
struct rlimit;
struct stat;
struct statfs;
struct statx;
struct timespec;

// The last call has left nothing.
#define RCUWALK_EVENT_NONE 0

// fork, vfork, clone or clone3 made a task. In it the call returns 0.
#define RCUWALK_EVENT_CLONED 1

// execve or execveat found a program to run.
#define RCUWALK_EVENT_EXECUTED 2

// The task has ended; its calls are -ESRCH from now on.
#define RCUWALK_EVENT_EXITED 3

// rcuwalk_exec_string: the path as given (AT_EXECFN).
#define RCUWALK_EXEC_FILENAME 0

// rcuwalk_exec_string: the path of the file to load: the last interpreter of a chain of scripts.
#define RCUWALK_EXEC_INTERP 1

// rcuwalk_exec_string: the dynamic loader that the file asks for; -ENOENT if it asks for none.
#define RCUWALK_EXEC_LOADER 2

// rcuwalk_exec_string: an argument.
#define RCUWALK_EXEC_ARGV 3

// rcuwalk_exec_string: a string of the environment.
#define RCUWALK_EXEC_ENVP 4

// rcuwalk_import: keep the contents of files, not only their sizes.
#define RCUWALK_IMPORT_CONTENTS 1

// rcuwalk_import: stay within one file system.
#define RCUWALK_IMPORT_ONE_FILE_SYSTEM 2

// rcuwalk_import: leave out extended attributes, and with them ACLs and file capabilities.
#define RCUWALK_IMPORT_NO_XATTRS 4

// `ns/user`, for setns and mount_setattr.
#define RCUWALK_PROC_NS_USER 0

// `ns/mnt`, for setns.
#define RCUWALK_PROC_NS_MNT 1

// `uid_map`, to be written once.
#define RCUWALK_PROC_UID_MAP 2

// `gid_map`, to be written once.
#define RCUWALK_PROC_GID_MAP 3

// `setgroups`: `allow` or `deny` is to be written.
#define RCUWALK_PROC_SETGROUPS 4

// Names a file system, a task or a program. Positive; a function that makes one returns it, or a negated error number.
typedef int64_t rcuwalk_handle;

// Settings of a file system. Zero in all of them is what a null pointer means.
typedef struct rcuwalk_options {
  // Most objects (inodes, and names) it can hold; 0 for 16,777,216, which only reserves addresses.
  uint32_t capacity;
  // fs.protected_symlinks: 0 or 1. rcuwalk_sysctl_set changes this and the next three later.
  uint8_t protected_symlinks;
  // fs.protected_hardlinks: 0 or 1.
  uint8_t protected_hardlinks;
  // fs.protected_regular: 0, 1 or 2.
  uint8_t protected_regular;
  // fs.protected_fifos: 0, 1 or 2.
  uint8_t protected_fifos;
  // Most bytes of file contents; 0 for no limit.
  uint64_t size_limit;
} rcuwalk_options;

// Who a task is. rcuwalk_cred_init fills one.
typedef struct rcuwalk_cred {
  // Real user id.
  uint32_t uid;
  // Effective user id.
  uint32_t euid;
  // Saved user id.
  uint32_t suid;
  // Filesystem user id.
  uint32_t fsuid;
  // Real group id.
  uint32_t gid;
  // Effective group id.
  uint32_t egid;
  // Saved group id.
  uint32_t sgid;
  // Filesystem group id.
  uint32_t fsgid;
  // Effective capabilities, bit n for capability n.
  uint64_t effective;
  // Permitted capabilities.
  uint64_t permitted;
  // Inheritable capabilities.
  uint64_t inheritable;
  // Ambient capabilities.
  uint64_t ambient;
  // Bounding set.
  uint64_t bounding;
  // SECBIT_*.
  uint32_t securebits;
  // Whether PR_SET_NO_NEW_PRIVS is on: 0 or 1. It cannot be taken off a task.
  uint32_t no_new_privs;
  // Supplementary groups.
  const uint32_t *groups;
  // How many there are.
  size_t ngroups;
} rcuwalk_cred;

// A range of an id map: ids from `first` on inside are ids from `lower` on outside.
typedef struct rcuwalk_extent {
  // First id inside.
  uint32_t first;
  // First id outside.
  uint32_t lower;
  // How many.
  uint32_t count;
} rcuwalk_extent;

// Memory of a program, for rcuwalk_syscall. Both functions return 0, or anything else for a fault, and may call the
// interface again, though not with the same task (-EBUSY).
typedef struct rcuwalk_memory {
  // Passed to the functions.
  void *user;
  // Copies `len` bytes at the program's address `from` to `to`.
  int (*read)(void *user, void *to, uint64_t from, size_t len);
  // Copies `len` bytes at `from` to the program's address `to`.
  int (*write)(void *user, uint64_t to, const void *from, size_t len);
} rcuwalk_memory;

// What a call leaves to the program that runs the task.
typedef struct rcuwalk_event {
  // RCUWALK_EVENT_*.
  uint32_t kind;
  // RCUWALK_EVENT_EXITED: the status.
  int32_t status;
  // RCUWALK_EVENT_CLONED: the new task. RCUWALK_EVENT_EXECUTED: the program. The caller's, to be destroyed.
  rcuwalk_handle handle;
  // RCUWALK_EVENT_CLONED: CLONE_* flags. RCUWALK_EVENT_EXITED: 1 if all threads of the process end.
  uint64_t flags;
} rcuwalk_event;

// What a task is about to run.
typedef struct rcuwalk_exec_info {
  // How many arguments, at least one.
  uint32_t argc;
  // How many strings the environment has.
  uint32_t envc;
  // AT_SECURE: 1 if the program has privileges that who started it has not.
  uint32_t secure;
  // Whether others of the same user may look into the process.
  uint32_t dumpable;
  // Bytes of the file.
  uint64_t size;
  // Its inode number.
  uint64_t ino;
} rcuwalk_exec_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, as "1.2.3".
const char *rcuwalk_version(void);

// Makes a file system: an empty root directory, of root, mode 0755. `options` may be null.
//
// Errors: -EFAULT, -ENOMEM, -EMFILE (too many handles), -EINVAL (options).
rcuwalk_handle rcuwalk_create(const struct rcuwalk_options *options);

// Gives up a file system, task or program. A call on it in another thread goes on until it returns; a file
// system lasts as long as its last task.
//
// Errors: -ESRCH (no such handle, or not any more).
int rcuwalk_destroy(rcuwalk_handle object);

// The value of a setting of the file system `vfs`, named as sysctl(8) writes it: fs.protected_symlinks,
// fs.protected_hardlinks, fs.protected_regular, fs.protected_fifos, fs.file-max, fs.nr_open, fs.mount-max,
// user.max_user_namespaces, user.max_mnt_namespaces.
//
// Errors: -ESRCH, -EINVAL (another handle), -EFAULT, -ENOENT (no such setting).
int64_t rcuwalk_sysctl_get(rcuwalk_handle vfs, const char *name);

// Changes a setting, for all tasks of the file system from now on.
//
// Errors: as rcuwalk_sysctl_get; -EINVAL (a value out of range).
int rcuwalk_sysctl_set(rcuwalk_handle vfs, const char *name, uint64_t value);

// Imports a directory of the running machine, or a tar archive (plain, gzip or zstd), into the empty file system `vfs`.
// `flags`: RCUWALK_IMPORT_*. Returns how many entries are not as in the source.
//
// Errors: -ESRCH, -EINVAL (another handle, flags, neither directory nor archive), -EFAULT, -ENOENT, -EACCES and what
// else opening the source answers, -EBADMSG (a damaged archive), -EFBIG (an archive that unpacks to more than is sane),
// -ENOSPC (the file system is full), -ENOMEM. rcuwalk_error_text says more.
int64_t rcuwalk_import(rcuwalk_handle vfs,
                       const char *source,
                       uint32_t flags);

// Saves a file system as a tar archive (PAX), which rcuwalk_import reads back: contents and holes, ids, times, extended
// attributes, ACLs, flags, devices, hard links. The file `target` of the running machine appears when it is whole; one that
// was there is replaced. Returns how many objects are not in it as they are, such as sockets.
//
// Errors: -ESRCH, -EINVAL (another handle), -EFAULT, -ENOENT, -EACCES, -ENOSPC and what else writing answers.
// rcuwalk_error_text says more.
int64_t rcuwalk_save(rcuwalk_handle vfs,
                     const char *target);

// What the last rcuwalk_import or rcuwalk_save of this thread that failed has to say, with a NUL, as far as there is room.
// Returns its length without the NUL; 0 if none failed.
//
// Errors: -EFAULT.
int64_t rcuwalk_error_text(char *buffer,
                           size_t size);

// Fills `cred` with a user who has just logged in: all user ids `uid`, all group ids `gid`, no supplementary groups, every
// capability for user 0 and none for any other user.
//
// Errors: -EFAULT.
int rcuwalk_cred_init(struct rcuwalk_cred *cred,
                      uint32_t uid,
                      uint32_t gid);

// Makes a task in `vfs`: root and current directory `/`, umask 022, no open files. A null `cred` is root's.
//
// A task makes one call at a time: calls on one task from several threads wait for each other. Threads that are to run side
// by side have a task each (rcuwalk_task_fork, rcuwalk_task_thread).
//
// Errors: -ESRCH, -EINVAL (another handle; a credential that cannot be), -EFAULT, -EMFILE.
rcuwalk_handle rcuwalk_task_create(rcuwalk_handle vfs,
                                   const struct rcuwalk_cred *cred);

// Replaces the credential of a task without asking what the task may do: no system call does this.
//
// Errors: -ESRCH, -EINVAL, -EFAULT, -EBUSY (from a callback of the same task).
int rcuwalk_task_set_cred(rcuwalk_handle task, const struct rcuwalk_cred *cred);

// Who a task is. Of the groups, as many are stored as the `ngroups` of `cred` leaves room for; `ngroups` becomes their
// number.
//
// Errors: -ESRCH, -EINVAL, -EFAULT, -EBUSY.
int rcuwalk_task_get_cred(rcuwalk_handle task,
                          struct rcuwalk_cred *cred);

// A child process of a task, as fork(2) makes one: open files are shared, the descriptor table is its own.
//
// Errors: -ESRCH, -EINVAL, -EMFILE, -EBUSY.
rcuwalk_handle rcuwalk_task_fork(rcuwalk_handle task);

// Another thread of a task's process: root, current directory, umask and descriptor table are shared.
//
// Errors: as rcuwalk_task_fork.
rcuwalk_handle rcuwalk_task_thread(rcuwalk_handle task);

// Writes the id maps of a task's user namespace (after unshare(CLONE_NEWUSER)), as root outside would.
//
// Errors: -ESRCH, -EINVAL (maps), -EPERM (there are maps already), -EFAULT, -EBUSY.
int rcuwalk_task_map_ids(rcuwalk_handle task,
                         const struct rcuwalk_extent *uids,
                         size_t nuids,
                         const struct rcuwalk_extent *gids,
                         size_t ngids);

// Opens a file of /proc/PID of the task `of` in the table of `task`: RCUWALK_PROC_NS_USER and RCUWALK_PROC_NS_MNT for setns,
// RCUWALK_PROC_UID_MAP, RCUWALK_PROC_GID_MAP and RCUWALK_PROC_SETGROUPS for write. Each caller with the handle of a task may.
//
// Errors: -ESRCH, -EINVAL (no such file), -EACCES (RCUWALK_PROC_SETGROUPS without CAP_SYS_ADMIN over the user namespace),
// -EMFILE, -EBUSY.
int rcuwalk_task_open_proc(rcuwalk_handle task,
                           rcuwalk_handle of,
                           int file);

// A descriptor of a new user namespace with these maps, in the table of `task`: for mount_setattr with MOUNT_ATTR_IDMAP.
//
// Errors: -ESRCH, -EINVAL (maps), -EFAULT, -EMFILE, -EBUSY.
int rcuwalk_task_open_user_ns(rcuwalk_handle task,
                              const struct rcuwalk_extent *uids,
                              size_t nuids,
                              const struct rcuwalk_extent *gids,
                              size_t ngids);

// Makes the system call `number` of x86-64 with these arguments: what the kernel would return, an error as a negated
// number.
//
// `memory` is where pointers among the arguments lead: null for the memory of this process, where a bad address is
// -EFAULT; RCUWALK_TRUSTED for the same without any check, which is faster; or callbacks. Checked memory needs
// process_vm_readv(2); where a sandbox forbids that, calls with pointers are -EPERM or -ENOSYS.
//
// What the call leaves to the caller, such as a new task, rcuwalk_task_event tells.
//
// Errors: the call's; -ESRCH (no such task, or it has exited), -EINVAL (another handle), -ENOSYS (no such call), -EBUSY
// (from a callback, with a task that is in use), -EIO (a mistake of the library).
int64_t rcuwalk_syscall(rcuwalk_handle task,
                        const struct rcuwalk_memory *memory,
                        uint64_t number,
                        uint64_t a0,
                        uint64_t a1,
                        uint64_t a2,
                        uint64_t a3,
                        uint64_t a4,
                        uint64_t a5);

// What the last call of a task has left; asking again tells of nothing.
//
// Errors: -ESRCH, -EINVAL, -EFAULT, -EMFILE, -EBUSY.
int rcuwalk_task_event(rcuwalk_handle task, struct rcuwalk_event *event);

// What is known of a program.
//
// Errors: -ESRCH, -EINVAL, -EFAULT.
int rcuwalk_exec_get_info(rcuwalk_handle exec, struct rcuwalk_exec_info *info);

// A string of a program, without a NUL, as far as there is room. `what`: RCUWALK_EXEC_*; `index` chooses among arguments
// and environment. Returns its length.
//
// Errors: -ESRCH, -EINVAL (`what`, another handle), -ENOENT (no such string), -EFAULT.
int64_t rcuwalk_exec_string(rcuwalk_handle exec,
                            uint32_t what,
                            uint32_t index,
                            char *buffer,
                            size_t size);

// Reads the file of a program at byte `offset`, without a check of its permissions; returns the number of bytes, fewer than `size` at
// the end.
//
// Errors: -ESRCH, -EINVAL, -EFAULT, -ENODATA (imported without contents).
int64_t rcuwalk_exec_read(rcuwalk_handle exec,
                          void *buffer,
                          size_t size,
                          uint64_t offset);

// open(2).
int rcuwalk_open(rcuwalk_handle task, const char *path, int flags, uint32_t mode);

// openat(2).
int rcuwalk_openat(rcuwalk_handle task, int dirfd, const char *path, int flags, uint32_t mode);

// openat2(2).
int rcuwalk_openat2(rcuwalk_handle task,
                    int dirfd,
                    const char *path,
                    const struct open_how *how,
                    size_t size);

// name_to_handle_at(2); `handle` is a struct file_handle.
int rcuwalk_name_to_handle_at(rcuwalk_handle task,
                              int dirfd,
                              const char *path,
                              void *handle,
                              void *mount_id,
                              int flags);

// open_by_handle_at(2); `handle` is a struct file_handle.
int rcuwalk_open_by_handle_at(rcuwalk_handle task, int mount_fd, void *handle, int flags);

// creat(2).
int rcuwalk_creat(rcuwalk_handle task, const char *path, uint32_t mode);

// close(2).
int rcuwalk_close(rcuwalk_handle task, int fd);

// close_range(2).
int rcuwalk_close_range(rcuwalk_handle task, unsigned int first, unsigned int last, unsigned int flags);

// read(2).
int64_t rcuwalk_read(rcuwalk_handle task, int fd, void *buffer, size_t count);

// write(2).
int64_t rcuwalk_write(rcuwalk_handle task, int fd, const void *buffer, size_t count);

// pread(2).
int64_t rcuwalk_pread(rcuwalk_handle task, int fd, void *buffer, size_t count, int64_t offset);

// pwrite(2).
int64_t rcuwalk_pwrite(rcuwalk_handle task, int fd, const void *buffer, size_t count, int64_t offset);

// readv(2).
int64_t rcuwalk_readv(rcuwalk_handle task, int fd, const struct iovec *iov, int iovcnt);

// writev(2).
int64_t rcuwalk_writev(rcuwalk_handle task, int fd, const struct iovec *iov, int iovcnt);

// preadv(2).
int64_t rcuwalk_preadv(rcuwalk_handle task, int fd, const struct iovec *iov, int iovcnt, int64_t offset);

// pwritev(2).
int64_t rcuwalk_pwritev(rcuwalk_handle task, int fd, const struct iovec *iov, int iovcnt, int64_t offset);

// preadv2(2).
int64_t rcuwalk_preadv2(rcuwalk_handle task,
                        int fd,
                        const struct iovec *iov,
                        int iovcnt,
                        int64_t offset,
                        int flags);

// pwritev2(2).
int64_t rcuwalk_pwritev2(rcuwalk_handle task,
                         int fd,
                         const struct iovec *iov,
                         int iovcnt,
                         int64_t offset,
                         int flags);

// sendfile(2).
int64_t rcuwalk_sendfile(rcuwalk_handle task, int out_fd, int in_fd, int64_t *offset, size_t count);

// lseek(2).
int64_t rcuwalk_lseek(rcuwalk_handle task, int fd, int64_t offset, int whence);

// getdents64(2).
int64_t rcuwalk_getdents64(rcuwalk_handle task, int fd, void *buffer, size_t count);

// truncate(2).
int rcuwalk_truncate(rcuwalk_handle task, const char *path, int64_t length);

// ftruncate(2).
int rcuwalk_ftruncate(rcuwalk_handle task, int fd, int64_t length);

// fallocate(2).
int rcuwalk_fallocate(rcuwalk_handle task, int fd, int mode, int64_t offset, int64_t length);

// copy_file_range(2).
int64_t rcuwalk_copy_file_range(rcuwalk_handle task,
                                int fd_in,
                                int64_t *off_in,
                                int fd_out,
                                int64_t *off_out,
                                size_t length,
                                unsigned int flags);

// fsync(2).
int rcuwalk_fsync(rcuwalk_handle task, int fd);

// fdatasync(2).
int rcuwalk_fdatasync(rcuwalk_handle task, int fd);

// syncfs(2).
int rcuwalk_syncfs(rcuwalk_handle task, int fd);

// dup(2).
int rcuwalk_dup(rcuwalk_handle task, int fd);

// dup2(2).
int rcuwalk_dup2(rcuwalk_handle task, int oldfd, int newfd);

// dup3(2).
int rcuwalk_dup3(rcuwalk_handle task, int oldfd, int newfd, int flags);

// fcntl(2).
int rcuwalk_fcntl(rcuwalk_handle task, int fd, int command, long argument);

// ioctl(2).
int rcuwalk_ioctl(rcuwalk_handle task, int fd, unsigned long request, void *argument);

// stat(2).
int rcuwalk_stat(rcuwalk_handle task, const char *path, struct stat *buffer);

// lstat(2).
int rcuwalk_lstat(rcuwalk_handle task, const char *path, struct stat *buffer);

// fstat(2).
int rcuwalk_fstat(rcuwalk_handle task, int fd, struct stat *buffer);

// newfstatat(2).
int rcuwalk_fstatat(rcuwalk_handle task, int dirfd, const char *path, struct stat *buffer, int flags);

// statx(2).
int rcuwalk_statx(rcuwalk_handle task,
                  int dirfd,
                  const char *path,
                  int flags,
                  unsigned int mask,
                  struct statx *buffer);

// access(2).
int rcuwalk_access(rcuwalk_handle task, const char *path, int mode);

// faccessat2(2).
int rcuwalk_faccessat(rcuwalk_handle task, int dirfd, const char *path, int mode, int flags);

// readlink(2).
int64_t rcuwalk_readlink(rcuwalk_handle task, const char *path, char *buffer, size_t size);

// readlinkat(2).
int64_t rcuwalk_readlinkat(rcuwalk_handle task, int dirfd, const char *path, char *buffer, size_t size);

// chdir(2).
int rcuwalk_chdir(rcuwalk_handle task, const char *path);

// fchdir(2).
int rcuwalk_fchdir(rcuwalk_handle task, int fd);

// chroot(2).
int rcuwalk_chroot(rcuwalk_handle task, const char *path);

// getcwd(2).
int64_t rcuwalk_getcwd(rcuwalk_handle task, char *buffer, size_t size);

// umask(2).
int rcuwalk_umask(rcuwalk_handle task, uint32_t mask);

// mkdir(2).
int rcuwalk_mkdir(rcuwalk_handle task, const char *path, uint32_t mode);

// mkdirat(2).
int rcuwalk_mkdirat(rcuwalk_handle task, int dirfd, const char *path, uint32_t mode);

// mknod(2).
int rcuwalk_mknod(rcuwalk_handle task, const char *path, uint32_t mode, uint32_t device);

// mknodat(2).
int rcuwalk_mknodat(rcuwalk_handle task, int dirfd, const char *path, uint32_t mode, uint32_t device);

// symlink(2).
int rcuwalk_symlink(rcuwalk_handle task, const char *target, const char *path);

// symlinkat(2).
int rcuwalk_symlinkat(rcuwalk_handle task, const char *target, int dirfd, const char *path);

// link(2).
int rcuwalk_link(rcuwalk_handle task, const char *oldpath, const char *newpath);

// linkat(2).
int rcuwalk_linkat(rcuwalk_handle task,
                   int olddirfd,
                   const char *oldpath,
                   int newdirfd,
                   const char *newpath,
                   int flags);

// unlink(2).
int rcuwalk_unlink(rcuwalk_handle task, const char *path);

// unlinkat(2).
int rcuwalk_unlinkat(rcuwalk_handle task, int dirfd, const char *path, int flags);

// rmdir(2).
int rcuwalk_rmdir(rcuwalk_handle task, const char *path);

// rename(2).
int rcuwalk_rename(rcuwalk_handle task, const char *oldpath, const char *newpath);

// renameat(2).
int rcuwalk_renameat(rcuwalk_handle task,
                     int olddirfd,
                     const char *oldpath,
                     int newdirfd,
                     const char *newpath);

// renameat2(2).
int rcuwalk_renameat2(rcuwalk_handle task,
                      int olddirfd,
                      const char *oldpath,
                      int newdirfd,
                      const char *newpath,
                      unsigned int flags);

// chmod(2).
int rcuwalk_chmod(rcuwalk_handle task, const char *path, uint32_t mode);

// fchmod(2).
int rcuwalk_fchmod(rcuwalk_handle task, int fd, uint32_t mode);

// fchmodat2(2).
int rcuwalk_fchmodat(rcuwalk_handle task, int dirfd, const char *path, uint32_t mode, int flags);

// chown(2).
int rcuwalk_chown(rcuwalk_handle task, const char *path, uint32_t uid, uint32_t gid);

// lchown(2).
int rcuwalk_lchown(rcuwalk_handle task, const char *path, uint32_t uid, uint32_t gid);

// fchown(2).
int rcuwalk_fchown(rcuwalk_handle task, int fd, uint32_t uid, uint32_t gid);

// fchownat(2).
int rcuwalk_fchownat(rcuwalk_handle task, int dirfd, const char *path, uint32_t uid, uint32_t gid, int flags);

// utimensat(2).
int rcuwalk_utimensat(rcuwalk_handle task,
                      int dirfd,
                      const char *path,
                      const struct timespec *times,
                      int flags);

// setxattr(2).
int rcuwalk_setxattr(rcuwalk_handle task,
                     const char *path,
                     const char *name,
                     const void *value,
                     size_t size,
                     int flags);

// lsetxattr(2).
int rcuwalk_lsetxattr(rcuwalk_handle task,
                      const char *path,
                      const char *name,
                      const void *value,
                      size_t size,
                      int flags);

// fsetxattr(2).
int rcuwalk_fsetxattr(rcuwalk_handle task,
                      int fd,
                      const char *name,
                      const void *value,
                      size_t size,
                      int flags);

// getxattr(2).
int64_t rcuwalk_getxattr(rcuwalk_handle task, const char *path, const char *name, void *value, size_t size);

// lgetxattr(2).
int64_t rcuwalk_lgetxattr(rcuwalk_handle task, const char *path, const char *name, void *value, size_t size);

// fgetxattr(2).
int64_t rcuwalk_fgetxattr(rcuwalk_handle task, int fd, const char *name, void *value, size_t size);

// listxattr(2).
int64_t rcuwalk_listxattr(rcuwalk_handle task, const char *path, char *list, size_t size);

// llistxattr(2).
int64_t rcuwalk_llistxattr(rcuwalk_handle task, const char *path, char *list, size_t size);

// flistxattr(2).
int64_t rcuwalk_flistxattr(rcuwalk_handle task, int fd, char *list, size_t size);

// removexattr(2).
int rcuwalk_removexattr(rcuwalk_handle task, const char *path, const char *name);

// lremovexattr(2).
int rcuwalk_lremovexattr(rcuwalk_handle task, const char *path, const char *name);

// fremovexattr(2).
int rcuwalk_fremovexattr(rcuwalk_handle task, int fd, const char *name);

// file_getattr(2); `attr` is a struct file_attr.
int rcuwalk_file_getattr(rcuwalk_handle task,
                         int dirfd,
                         const char *path,
                         void *attr,
                         size_t size,
                         int flags);

// file_setattr(2); `attr` is a struct file_attr.
int rcuwalk_file_setattr(rcuwalk_handle task,
                         int dirfd,
                         const char *path,
                         const void *attr,
                         size_t size,
                         int flags);

// mount(2).
int rcuwalk_mount(rcuwalk_handle task,
                  const char *source,
                  const char *target,
                  const char *fstype,
                  unsigned long flags,
                  const void *data);

// umount2(2).
int rcuwalk_umount2(rcuwalk_handle task, const char *target, int flags);

// mount_setattr(2).
int rcuwalk_mount_setattr(rcuwalk_handle task,
                          int dirfd,
                          const char *path,
                          unsigned int flags,
                          struct mount_attr *attr,
                          size_t size);

// open_tree(2).
int rcuwalk_open_tree(rcuwalk_handle task, int dirfd, const char *path, unsigned int flags);

// open_tree_attr(2).
int rcuwalk_open_tree_attr(rcuwalk_handle task,
                           int dirfd,
                           const char *path,
                           unsigned int flags,
                           struct mount_attr *attr,
                           size_t size);

// statmount(2); `req` is a struct mnt_id_req.
int rcuwalk_statmount(rcuwalk_handle task, const void *req, void *buffer, size_t size, unsigned int flags);

// listmount(2); `req` is a struct mnt_id_req.
int64_t rcuwalk_listmount(rcuwalk_handle task,
                          const void *req,
                          uint64_t *mnt_ids,
                          size_t count,
                          unsigned int flags);

// move_mount(2).
int rcuwalk_move_mount(rcuwalk_handle task,
                       int from_dirfd,
                       const char *from,
                       int to_dirfd,
                       const char *to,
                       unsigned int flags);

// unshare(2).
int rcuwalk_unshare(rcuwalk_handle task, int flags);

// setns(2).
int rcuwalk_setns(rcuwalk_handle task, int fd, int nstype);

// getuid(2).
int64_t rcuwalk_getuid(rcuwalk_handle task);

// geteuid(2).
int64_t rcuwalk_geteuid(rcuwalk_handle task);

// getgid(2).
int64_t rcuwalk_getgid(rcuwalk_handle task);

// getegid(2).
int64_t rcuwalk_getegid(rcuwalk_handle task);

// setuid(2).
int rcuwalk_setuid(rcuwalk_handle task, uint32_t uid);

// setgid(2).
int rcuwalk_setgid(rcuwalk_handle task, uint32_t gid);

// setreuid(2).
int rcuwalk_setreuid(rcuwalk_handle task, uint32_t ruid, uint32_t euid);

// setregid(2).
int rcuwalk_setregid(rcuwalk_handle task, uint32_t rgid, uint32_t egid);

// setresuid(2).
int rcuwalk_setresuid(rcuwalk_handle task, uint32_t ruid, uint32_t euid, uint32_t suid);

// setresgid(2).
int rcuwalk_setresgid(rcuwalk_handle task, uint32_t rgid, uint32_t egid, uint32_t sgid);

// setfsuid(2).
int64_t rcuwalk_setfsuid(rcuwalk_handle task, uint32_t uid);

// setfsgid(2).
int64_t rcuwalk_setfsgid(rcuwalk_handle task, uint32_t gid);

// getresuid(2).
int rcuwalk_getresuid(rcuwalk_handle task, uint32_t *ruid, uint32_t *euid, uint32_t *suid);

// getresgid(2).
int rcuwalk_getresgid(rcuwalk_handle task, uint32_t *rgid, uint32_t *egid, uint32_t *sgid);

// getgroups(2).
int rcuwalk_getgroups(rcuwalk_handle task, int size, uint32_t *list);

// setgroups(2).
int rcuwalk_setgroups(rcuwalk_handle task, size_t size, const uint32_t *list);

// capget(2).
int rcuwalk_capget(rcuwalk_handle task, void *header, void *data);

// capset(2).
int rcuwalk_capset(rcuwalk_handle task, void *header, const void *data);

// prctl(2).
int rcuwalk_prctl(rcuwalk_handle task,
                  int option,
                  unsigned long arg2,
                  unsigned long arg3,
                  unsigned long arg4,
                  unsigned long arg5);

// prlimit(2).
int rcuwalk_prlimit(rcuwalk_handle task,
                    int pid,
                    unsigned int resource,
                    const struct rlimit *new_limit,
                    struct rlimit *old_limit);

// execve(2).
int rcuwalk_execve(rcuwalk_handle task, const char *path, char *const *argv, char *const *envp);

// execveat(2).
int rcuwalk_execveat(rcuwalk_handle task,
                     int dirfd,
                     const char *path,
                     char *const *argv,
                     char *const *envp,
                     int flags);

// exit(2).
int rcuwalk_exit(rcuwalk_handle task, int status);

// flock(2), without waiting.
int rcuwalk_flock(rcuwalk_handle task, int fd, int operation);

// statfs(2).
int rcuwalk_statfs(rcuwalk_handle task, const char *path, struct statfs *buffer);

// fstatfs(2).
int rcuwalk_fstatfs(rcuwalk_handle task, int fd, struct statfs *buffer);

// pivot_root(2).
int rcuwalk_pivot_root(rcuwalk_handle task, const char *new_root, const char *put_old);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* RCUWALK_H */

/* Memory for rcuwalk_syscall: this process's, every address believed. */
#define RCUWALK_TRUSTED ((const struct rcuwalk_memory *)-1)
