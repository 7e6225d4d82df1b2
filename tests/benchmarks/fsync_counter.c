/* Counts the calls that make data durable, for LD_PRELOAD. FSYNC_COUNT_FILE names a file of eight bytes, which is
 * mapped and added to by every process that has it: the count is exact whatever way the processes end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static unsigned long *counter(void) {
    static unsigned long *mapped;
    if (mapped == NULL) {
        const char *name = getenv("FSYNC_COUNT_FILE");
        int file = name == NULL ? -1 : open(name, O_RDWR | O_CLOEXEC);
        static unsigned long unused;
        void *place = file < 0 ? MAP_FAILED : mmap(NULL, sizeof unused, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (file >= 0)
            close(file);
        mapped = place == MAP_FAILED ? &unused : place;
    }
    return mapped;
}

#define COUNTED(name)                                                  \
    int name(int file) {                                               \
        static int (*real)(int);                                       \
        if (real == NULL)                                              \
            real = (int (*)(int))dlsym(RTLD_NEXT, #name);              \
        __atomic_add_fetch(counter(), 1, __ATOMIC_RELAXED);            \
        return real(file);                                             \
    }

COUNTED(fsync)
COUNTED(fdatasync)
COUNTED(syncfs)
