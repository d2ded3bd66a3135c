/* A disk that fails when it is told to, under whatever program is started with LD_PRELOAD; `faulty_disk.py` steers it.

   FAULTY_DISK_BOARD names a file of `struct rule`s, shared with the test: a call on a file whose path ends with a rule's name
   is struck. FAULTY_DISK_TRACE names a file to which everything that changes something is written down as it happens,
   for FAULTY_DISK_ROOT and the files below it: what a power cut would leave can be worked out of it. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN = 1, READ = 2, WRITE = 4, SYNC = 8, TRUNCATE = 16, RENAME = 32, UNLINK = 64, LINK = 128 };
enum { HOLD = 0, KILL = -1 };
enum { RULES = 8, DESCRIPTOR = 700 };

/* `error` is an errno, HOLD (until the rule is lifted) or KILL. So many calls pass first, so many are struck, so many were. A
   write that is struck leaves its first `torn` bytes behind. */
struct rule {
    char name[64];
    uint32_t calls;
    int32_t error;
    int64_t skip, times, struck, torn;
};

static struct rule *board;
static int trace = -1;
static char root[PATH_MAX];
static pthread_mutex_t tracing = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) { return dlsym(RTLD_NEXT, name); }

__attribute__((constructor)) static void begin(void) {
    const char *file = getenv("FAULTY_DISK_BOARD");
    if (file) {
        int fd = REAL(open)(file, O_RDWR | O_CLOEXEC);
        if (fd < 0) abort();
        board = REAL(mmap)(NULL, RULES * sizeof(struct rule), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (board == MAP_FAILED) abort();
        close(fd);
    }
    if ((file = getenv("FAULTY_DISK_TRACE"))) {
        int fd = REAL(open)(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        /* Out of the way: a program may count on the lowest descriptor being free. */
        if (fd < 0 || (trace = fcntl(fd, F_DUPFD_CLOEXEC, DESCRIPTOR)) < 0) abort();
        close(fd);
        snprintf(root, sizeof root, "%s", getenv("FAULTY_DISK_ROOT"));
    }
}

static const char *path_of(int fd, char *buffer) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, buffer, PATH_MAX - 1);
    buffer[length < 0 ? 0 : length] = 0;
    return buffer;
}

static const char *absolute(const char *path, char *buffer) {
    if (path[0] == '/' || !getcwd(buffer, PATH_MAX)) return path;
    size_t length = strlen(buffer);
    snprintf(buffer + length, PATH_MAX - length, "/%s", path);
    return buffer;
}

static int ends_with(const char *path, const char *name) {
    size_t length = strlen(path), wanted = strlen(name);
    return length >= wanted && !strcmp(path + length - wanted, name);
}

/* The rule that strikes this call, if any; `path` NULL: that of `fd`. */
static struct rule *striking(uint32_t call, const char *path, int fd) {
    char buffer[PATH_MAX];
    for (int each = 0; board && each < RULES; each++) {
        struct rule *rule = board + each;
        if (!(__atomic_load_n(&rule->calls, __ATOMIC_ACQUIRE) & call)) continue;
        if (!path) path = path_of(fd, buffer);
        if (!ends_with(path, rule->name)) continue;
        if (__atomic_fetch_sub(&rule->skip, 1, __ATOMIC_ACQ_REL) > 0) continue;
        if (__atomic_fetch_sub(&rule->times, 1, __ATOMIC_ACQ_REL) <= 0) continue;
        return rule;
    }
    return NULL;
}

static int strike(struct rule *rule) {
    __atomic_fetch_add(&rule->struck, 1, __ATOMIC_ACQ_REL);
    if (rule->error == KILL) raise(SIGKILL);
    if (rule->error > 0) {
        errno = rule->error;
        return -1;
    }
    while (__atomic_load_n(&rule->calls, __ATOMIC_ACQUIRE)) usleep(2000);
    return 0;
}

static int is_struck(uint32_t call, const char *path, int fd) {
    struct rule *rule = striking(call, path, fd);
    return rule && strike(rule) < 0;
}

/* One record: what, whether it went well, offset, and the lengths of path and data, which follow. */
static void note(uint32_t call, int went_well, const char *path, int64_t offset, const void *data, size_t size) {
    if (trace < 0 || strncmp(path, root, strlen(root)) || (path[strlen(root)] && path[strlen(root)] != '/')) return;
    struct { uint32_t call, went_well, path, data; int64_t offset; } head = {call, went_well, strlen(path), size, offset};
    int before = errno;
    pthread_mutex_lock(&tracing);
    if (REAL(write)(trace, &head, sizeof head) < 0 || REAL(write)(trace, path, head.path) < 0 ||
        (size && REAL(write)(trace, data, size) < 0)) abort();
    pthread_mutex_unlock(&tracing);
    errno = before;
}

static void note_on(uint32_t call, int went_well, int fd, int64_t offset, const void *data, size_t size) {
    char buffer[PATH_MAX];
    if (trace >= 0) note(call, went_well, path_of(fd, buffer), offset, data, size);
}

static int opened(int (*call)(int, const char *, int, ...), int at, const char *path, int flags, mode_t mode) {
    char buffer[PATH_MAX];
    const char *whole = at == AT_FDCWD ? absolute(path, buffer) : path;
    if (is_struck(OPEN, whole, -1)) return -1;
    int is_new = (flags & O_CREAT) && faccessat(at, path, F_OK, AT_SYMLINK_NOFOLLOW);
    int fd = call(at, path, flags, mode);
    if (fd >= 0 && is_new) note_on(OPEN, 1, fd, 0, NULL, 0);
    if (fd >= 0 && !is_new && (flags & O_TRUNC)) note_on(TRUNCATE, 1, fd, 0, NULL, 0);
    return fd;
}

#define MODE(flags) \
    mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, flags); mode = va_arg(rest, int); va_end(rest); }

int open(const char *path, int flags, ...) { MODE(flags) return opened(REAL(openat), AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return opened(REAL(openat64), AT_FDCWD, path, flags, mode); }
int openat(int at, const char *path, int flags, ...) { MODE(flags) return opened(REAL(openat), at, path, flags, mode); }
int openat64(int at, const char *path, int flags, ...) { MODE(flags) return opened(REAL(openat64), at, path, flags, mode); }

ssize_t read(int fd, void *data, size_t size) {
    return is_struck(READ, NULL, fd) ? -1 : REAL(read)(fd, data, size);
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
    return is_struck(READ, NULL, fd) ? -1 : REAL(pread64)(fd, data, size, offset);
}

/* `offset` -1: where the descriptor stands. */
static ssize_t really_written(int fd, const void *data, size_t size, off64_t offset) {
    ssize_t written = offset < 0 ? REAL(write)(fd, data, size) : REAL(pwrite64)(fd, data, size, offset);
    if (written > 0) note_on(WRITE, 1, fd, offset < 0 ? lseek(fd, 0, SEEK_CUR) - written : offset, data, written);
    return written;
}

static ssize_t written(int fd, const void *data, size_t size, off64_t offset) {
    struct rule *rule = striking(WRITE, NULL, fd);
    if (rule && rule->error != HOLD && rule->torn > 0)
        really_written(fd, data, (size_t)rule->torn < size ? (size_t)rule->torn : size, offset);
    return rule && strike(rule) < 0 ? -1 : really_written(fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size) { return written(fd, data, size, -1); }

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) { return written(fd, data, size, offset); }

/* A sync that fails takes what was written with it: the pages count as clean, and nothing writes them any more. */
static int synced(int (*call)(int), int fd) {
    struct rule *rule = striking(SYNC, NULL, fd);
    if (rule && rule->error != HOLD) note_on(SYNC, 0, fd, 0, NULL, 0);
    if (rule && strike(rule) < 0) return -1;
    int result = call(fd);
    note_on(SYNC, result == 0, fd, 0, NULL, 0);
    return result;
}

int fsync(int fd) { return synced(REAL(fsync), fd); }
int fdatasync(int fd) { return synced(REAL(fdatasync), fd); }

int ftruncate64(int fd, off64_t length) {
    if (is_struck(TRUNCATE, NULL, fd)) return -1;
    int result = REAL(ftruncate64)(fd, length);
    if (!result) note_on(TRUNCATE, 1, fd, length, NULL, 0);
    return result;
}

static int named(uint32_t call, int (*move)(const char *, const char *), const char *source, const char *target) {
    char first[PATH_MAX], second[PATH_MAX];
    const char *to = absolute(target, second), *from = absolute(source, first);
    if (is_struck(call, to, -1)) return -1;
    int result = move(source, target);
    if (!result) note(call, 1, from, 0, to, strlen(to));
    return result;
}

int rename(const char *source, const char *target) { return named(RENAME, REAL(rename), source, target); }
int link(const char *source, const char *target) { return named(LINK, REAL(link), source, target); }

int unlink(const char *path) {
    char buffer[PATH_MAX];
    const char *whole = absolute(path, buffer);
    if (is_struck(UNLINK, whole, -1)) return -1;
    int result = REAL(unlink)(path);
    if (!result) note(UNLINK, 1, whole, 0, NULL, 0);
    return result;
}
