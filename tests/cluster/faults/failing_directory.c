/* Lets every call on the files of one directory fail with EIO while a switch, a file, is there.

   Preloaded into a broker: FAILING_DIRECTORY is the directory, FAILING_SWITCH the file. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int lies_there(const char *path) {
    const char *directory = getenv("FAILING_DIRECTORY");
    size_t length = directory == NULL ? 0 : strlen(directory);
    return length > 0 && path != NULL && strncmp(path, directory, length) == 0 &&
           (path[length] == '/' || path[length] == 0);
}

static int is_failing(const char *path) {
    const char *at = getenv("FAILING_SWITCH");
    return lies_there(path) && at != NULL && access(at, F_OK) == 0;
}

static int is_descriptor_failing(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int saved = errno;
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = saved;
    if (length < 0) return 0;
    path[length] = 0;
    return is_failing(path);
}

#define FAIL do { errno = EIO; return -1; } while (0)
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define OF_DESCRIPTOR(type, name, parameters, ...) \
    type name parameters { \
        if (is_descriptor_failing(fd)) FAIL; \
        return REAL(name)(__VA_ARGS__); \
    }

OF_DESCRIPTOR(ssize_t, pread, (int fd, void *b, size_t n, off_t at), fd, b, n, at)
OF_DESCRIPTOR(ssize_t, pread64, (int fd, void *b, size_t n, off64_t at), fd, b, n, at)
OF_DESCRIPTOR(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t at), fd, b, n, at)
OF_DESCRIPTOR(ssize_t, pwrite64, (int fd, const void *b, size_t n, off64_t at), fd, b, n, at)
typedef const struct iovec *chunks;

OF_DESCRIPTOR(ssize_t, preadv, (int fd, chunks v, int n, off_t at), fd, v, n, at)
OF_DESCRIPTOR(ssize_t, preadv64, (int fd, chunks v, int n, off64_t at), fd, v, n, at)
OF_DESCRIPTOR(ssize_t, pwritev, (int fd, chunks v, int n, off_t at), fd, v, n, at)
OF_DESCRIPTOR(ssize_t, pwritev64, (int fd, chunks v, int n, off64_t at), fd, v, n, at)
OF_DESCRIPTOR(ssize_t, preadv2, (int fd, chunks v, int n, off_t at, int f), fd, v, n, at, f)
OF_DESCRIPTOR(ssize_t, preadv64v2, (int fd, chunks v, int n, off64_t at, int f), fd, v, n, at, f)
OF_DESCRIPTOR(ssize_t, pwritev2, (int fd, chunks v, int n, off_t at, int f), fd, v, n, at, f)
OF_DESCRIPTOR(ssize_t, pwritev64v2, (int fd, chunks v, int n, off64_t at, int f), fd, v, n, at, f)
OF_DESCRIPTOR(ssize_t, read, (int fd, void *b, size_t n), fd, b, n)
OF_DESCRIPTOR(ssize_t, write, (int fd, const void *b, size_t n), fd, b, n)
OF_DESCRIPTOR(int, fsync, (int fd), fd)
OF_DESCRIPTOR(int, fdatasync, (int fd), fd)
OF_DESCRIPTOR(int, ftruncate, (int fd, off_t n), fd, n)
OF_DESCRIPTOR(int, ftruncate64, (int fd, off64_t n), fd, n)

ssize_t sendfile(int to, int fd, off_t *at, size_t n) {
    if (is_descriptor_failing(fd)) FAIL;
    return syscall(SYS_sendfile, to, fd, at, n);
}

ssize_t sendfile64(int to, int fd, off64_t *at, size_t n) {
    if (is_descriptor_failing(fd)) FAIL;
    return syscall(SYS_sendfile, to, fd, at, n);
}

static int opened(int at, const char *path, int flags, mode_t mode) {
    if (is_failing(path)) FAIL;
    return (int)syscall(SYS_openat, at, path, flags | O_LARGEFILE, mode);
}

#define OPEN(name, first, ...) \
    int name(first const char *path, int flags, ...) { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = va_arg(rest, mode_t); \
        va_end(rest); \
        return opened(__VA_ARGS__, path, flags, mode); \
    }
#define NOTHING
#define AT int at,

OPEN(open, NOTHING, AT_FDCWD)
OPEN(open64, NOTHING, AT_FDCWD)
OPEN(openat, AT, at)
OPEN(openat64, AT, at)

#define OF_PATH(name, parameters, ...) \
    int name parameters { \
        if (is_failing(path)) FAIL; \
        return REAL(name)(__VA_ARGS__); \
    }

OF_PATH(rename, (const char *path, const char *to), path, to)
OF_PATH(unlink, (const char *path), path)
OF_PATH(rmdir, (const char *path), path)
OF_PATH(mkdir, (const char *path, mode_t mode), path, mode)

DIR *opendir(const char *path) {
    if (is_failing(path)) {
        errno = EIO;
        return NULL;
    }
    return REAL(opendir)(path);
}
