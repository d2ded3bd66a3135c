/* A wall clock that is set on demand, under whatever program is started with LD_PRELOAD; `set_clock.py` sets it.

   SET_CLOCK names a file of one number, shared with the test: the milliseconds that the wall clock is ahead. The clocks that tell
   how much time has passed stay right. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *ahead_ms;
static int (*right)(clockid_t, struct timespec *);

__attribute__((constructor)) static void begin(void) {
    right = dlsym(RTLD_NEXT, "clock_gettime");
    const char *name = getenv("SET_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) abort();
    ahead_ms = mmap(NULL, sizeof *ahead_ms, PROT_READ, MAP_SHARED, file, 0);
    if (ahead_ms == MAP_FAILED) abort();
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    if (!right) begin();
    int failed = right(clock, at);
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return failed;
    int64_t ms = *ahead_ms, nanoseconds = at->tv_nsec + ms % 1000 * 1000000;
    at->tv_sec += ms / 1000 + (nanoseconds >= 1000000000) - (nanoseconds < 0);
    at->tv_nsec = (nanoseconds + 1000000000) % 1000000000;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    at->tv_sec = found.tv_sec;
    at->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *to) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (to) *to = found.tv_sec;
    return found.tv_sec;
}
