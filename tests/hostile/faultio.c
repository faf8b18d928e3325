/* Makes calls of the C library fail on purpose: LD_PRELOAD it, and say in the file that FAULTIO names what is to fail.
 *
 *   cc -shared -fPIC -O1 -o faultio.so faultio.c -ldl
 *
 * A line of that file is a rule, its words separated by blanks:
 *
 *   <part of the path> <operation> <errno> <one in n> <at most>
 *
 *   /meta/ sync 5 1 0      every fsync and fdatasync of a file (or folder) below a folder `meta` fails with EIO
 *   /rows/ write 28 3 100  every third write there fails with ENOSPC, a hundred times
 *   /rows/db$ sync 5 1 0   only of this folder itself: `$` ends a path
 *
 * Operations: open (also creat), write (write, pwrite, writev, pwritev, fallocate), sync (fsync, fdatasync, sync_file_range), rename (also link), read
 * (read, pread, preadv). A file opened with O_DSYNC or O_SYNC is synced by its writes: `sync` fails these too. An empty or missing file:
 * nothing fails. An errno of -1 makes the call wait until the rule is gone. The file is read again when it changed, looked at every few milliseconds; a failed write leaves half of its bytes, as a
 * torn one would. "fired <n>" is kept in <FAULTIO>.fired, written when a rule fires first and at each doubling.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum operation { OPEN, WRITE, SYNC, RENAME, READ };

struct rule {
    char part[256];
    enum operation operation;
    int error;
    unsigned one_in;
    unsigned long at_most;
    unsigned long seen;
};

#define MAX_RULES 16
#define LOOK_NS 2000000L

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rule rules[MAX_RULES];
static int n_rules;
static struct stat read_last;
static atomic_long looked_ns;
static unsigned long n_fired;
/* Set while this library itself reads its file. */
static __thread int inside;

static long now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

/* By the system calls themselves: nothing here may come back to the functions below. What is found is asked before it is read: whoever writes
 * the file cuts it first, and both may happen at one time of the system's clock. */
static long slurp(const char *path, char *text, size_t room, struct stat *found) {
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (file < 0) return -1;
    long n = fstat(file, found) == 0 ? syscall(SYS_read, file, text, room - 1) : -1;
    syscall(SYS_close, file);
    if (n < 0) return -1;
    text[n] = 0;
    return n;
}

static void load(void) {
    const char *path = getenv("FAULTIO");
    long now = now_ns();
    if (path == NULL || now - atomic_load(&looked_ns) < LOOK_NS) return;
    atomic_store(&looked_ns, now);
    char text[4096];
    struct stat found = {0};
    if (slurp(path, text, sizeof text, &found) < 0) {
        n_rules = 0;
        read_last = (struct stat){0};
        return;
    }
    if (found.st_mtim.tv_sec == read_last.st_mtim.tv_sec && found.st_mtim.tv_nsec == read_last.st_mtim.tv_nsec &&
        found.st_size == read_last.st_size && found.st_ino == read_last.st_ino)
        return;
    read_last = found;
    n_rules = 0;
    n_fired = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line && n_rules < MAX_RULES; line = strtok_r(NULL, "\n", &rest)) {
        struct rule *rule = &rules[n_rules];
        char operation[16];
        memset(rule, 0, sizeof *rule);
        if (sscanf(line, "%255s %15s %d %u %lu", rule->part, operation, &rule->error, &rule->one_in, &rule->at_most) != 5) continue;
        if (rule->one_in == 0) rule->one_in = 1;
        if (strcmp(operation, "open") == 0) rule->operation = OPEN;
        else if (strcmp(operation, "write") == 0) rule->operation = WRITE;
        else if (strcmp(operation, "sync") == 0) rule->operation = SYNC;
        else if (strcmp(operation, "rename") == 0) rule->operation = RENAME;
        else if (strcmp(operation, "read") == 0) rule->operation = READ;
        else continue;
        n_rules++;
    }
}

static void tell_fired(void) {
    n_fired++;
    if ((n_fired & (n_fired - 1)) != 0) return;
    char path[4096], text[64];
    snprintf(path, sizeof path, "%s.fired", getenv("FAULTIO"));
    int n = snprintf(text, sizeof text, "fired %lu\n", n_fired);
    int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (syscall(SYS_write, file, text, (size_t)n) < 0) { /* nobody reads it then */ }
    syscall(SYS_close, file);
}

/* `rows/db$`: the path ends so; else the part is anywhere in it. */
static int is_at(const char *path, const char *part) {
    size_t n_path = strlen(path), n_part = strlen(part);
    if (n_part == 0 || part[n_part - 1] != '$') return strstr(path, part) != NULL;
    n_part--;
    return n_path >= n_part && strncmp(path + n_path - n_part, part, n_part) == 0;
}

/* What the rules say now. */
static int looked_up(const char *path, enum operation operation) {
    int error = 0;
    inside = 1;
    pthread_mutex_lock(&lock);
    load();
    for (int i = 0; i < n_rules && error == 0; i++) {
        struct rule *rule = &rules[i];
        if (rule->operation != operation || !is_at(path, rule->part)) continue;
        rule->seen++;
        if (rule->seen % rule->one_in != 0) continue;
        if (rule->at_most != 0 && rule->seen / rule->one_in > rule->at_most) continue;
        error = rule->error;
        tell_fired();
    }
    pthread_mutex_unlock(&lock);
    inside = 0;
    return error;
}

/* The error to answer with, or 0. */
static int asked(const char *path, enum operation operation) {
    if (inside || path == NULL || getenv("FAULTIO") == NULL) return 0;
    int error;
    while ((error = looked_up(path, operation)) < 0) {
        struct timespec pause = {0, 5000000};
        nanosleep(&pause, NULL);
    }
    return error;
}

static int asked_of(int file, enum operation operation) {
    if (inside || getenv("FAULTIO") == NULL) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    int error = asked(path, operation);
    if (error == 0 && operation == WRITE) {
        int flags = fcntl(file, F_GETFL);
        if (flags >= 0 && (flags & O_DSYNC)) error = asked(path, SYNC);
    }
    return error;
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define REFUSE(error, value) do { if (error) { errno = error; return value; } } while (0)

#define OPEN_OF(name)                                             \
    int name(const char *path, int flags, ...) {                  \
        REAL(name);                                               \
        va_list more;                                             \
        va_start(more, flags);                                    \
        mode_t mode = va_arg(more, mode_t);                       \
        va_end(more);                                             \
        int error = asked(path, OPEN);                            \
        REFUSE(error, -1);                                        \
        return real(path, flags, mode);                           \
    }
OPEN_OF(open)
OPEN_OF(open64)

#define OPENAT_OF(name)                                           \
    int name(int dir, const char *path, int flags, ...) {         \
        REAL(name);                                               \
        va_list more;                                             \
        va_start(more, flags);                                    \
        mode_t mode = va_arg(more, mode_t);                       \
        va_end(more);                                             \
        int error = asked(path, OPEN);                            \
        REFUSE(error, -1);                                        \
        return real(dir, path, flags, mode);                      \
    }
OPENAT_OF(openat)
OPENAT_OF(openat64)

int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }

FILE *fopen(const char *path, const char *mode) {
    REAL(fopen);
    int error = asked(path, OPEN);
    REFUSE(error, NULL);
    return real(path, mode);
}

FILE *fopen64(const char *path, const char *mode) {
    REAL(fopen64);
    int error = asked(path, OPEN);
    REFUSE(error, NULL);
    return real(path, mode);
}

ssize_t write(int file, const void *bytes, size_t n) {
    REAL(write);
    int error = asked_of(file, WRITE);
    if (error && n > 1 && real(file, bytes, n / 2) < 0) return -1;
    REFUSE(error, -1);
    return real(file, bytes, n);
}

#define PWRITE_OF(name, offset_t)                                                   \
    ssize_t name(int file, const void *bytes, size_t n, offset_t at) {              \
        REAL(name);                                                                 \
        int error = asked_of(file, WRITE);                                          \
        if (error && n >= 1024 && real(file, bytes, n / 2 & ~511UL, at) < 0) return -1; \
        REFUSE(error, -1);                                                          \
        return real(file, bytes, n, at);                                            \
    }
PWRITE_OF(pwrite, off_t)
PWRITE_OF(pwrite64, off64_t)

ssize_t writev(int file, const struct iovec *parts, int n) {
    REAL(writev);
    int error = asked_of(file, WRITE);
    REFUSE(error, -1);
    return real(file, parts, n);
}

#define PWRITEV_OF(name, offset_t)                                                  \
    ssize_t name(int file, const struct iovec *parts, int n, offset_t at) {         \
        REAL(name);                                                                 \
        int error = asked_of(file, WRITE);                                          \
        REFUSE(error, -1);                                                          \
        return real(file, parts, n, at);                                            \
    }
PWRITEV_OF(pwritev, off_t)
PWRITEV_OF(pwritev64, off64_t)

int fallocate(int file, int mode, off_t at, off_t n) {
    REAL(fallocate);
    int error = asked_of(file, WRITE);
    REFUSE(error, -1);
    return real(file, mode, at, n);
}

int fallocate64(int file, int mode, off64_t at, off64_t n) {
    REAL(fallocate64);
    int error = asked_of(file, WRITE);
    REFUSE(error, -1);
    return real(file, mode, at, n);
}

int fsync(int file) {
    REAL(fsync);
    int error = asked_of(file, SYNC);
    REFUSE(error, -1);
    return real(file);
}

int fdatasync(int file) {
    REAL(fdatasync);
    int error = asked_of(file, SYNC);
    REFUSE(error, -1);
    return real(file);
}

int sync_file_range(int file, off64_t at, off64_t n, unsigned flags) {
    REAL(sync_file_range);
    int error = asked_of(file, SYNC);
    REFUSE(error, -1);
    return real(file, at, n, flags);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    int error = asked(to, RENAME);
    REFUSE(error, -1);
    return real(from, to);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    REAL(renameat);
    int error = asked(to, RENAME);
    REFUSE(error, -1);
    return real(from_dir, from, to_dir, to);
}

int link(const char *from, const char *to) {
    REAL(link);
    int error = asked(to, RENAME);
    REFUSE(error, -1);
    return real(from, to);
}

ssize_t read(int file, void *bytes, size_t n) {
    REAL(read);
    int error = asked_of(file, READ);
    REFUSE(error, -1);
    return real(file, bytes, n);
}

#define PREAD_OF(name, offset_t)                                                    \
    ssize_t name(int file, void *bytes, size_t n, offset_t at) {                    \
        REAL(name);                                                                 \
        int error = asked_of(file, READ);                                           \
        REFUSE(error, -1);                                                          \
        return real(file, bytes, n, at);                                            \
    }
PREAD_OF(pread, off_t)
PREAD_OF(pread64, off64_t)
