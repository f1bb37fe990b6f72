/* A disk that takes longer: loaded before a program (LD_PRELOAD), every flush sleeps so many
 * microseconds (SLOW_DISK_US) more. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

static int slowed(const char *name, int file)
{
    int (*flush)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    const char *us = getenv("SLOW_DISK_US");
    int said = flush(file);
    if (us)
        usleep((useconds_t)atoi(us));
    return said;
}

int fsync(int file) { return slowed("fsync", file); }
int fdatasync(int file) { return slowed("fdatasync", file); }
