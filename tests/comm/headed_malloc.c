/* An allocator for LD_PRELOAD, like those with which programs replace libc's
 * allocator by a faster one. It takes its memory from libc's, but puts a
 * header before what it gives out: freeing memory of one allocator with the
 * other one ends the process. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void __libc_free(void *memory);
void *memalign(size_t alignment, size_t bytes);
size_t malloc_usable_size(void *memory);

/* The mark lies where libc's allocator expects the size of what it is to
 * free, and is no valid size. */
typedef struct {
    void *base;
    size_t bytes;
    uintptr_t unused, mark;
} header_t;

static const uintptr_t given_out = ~(uintptr_t)0xff | 0x9a;

static header_t *header_of(void *memory)
{
    header_t *const header = (header_t *)memory - 1;
    static const char sentence[] = "headed_malloc: freed what another allocator has given out\n";
    if (header->mark == given_out) return header;
    if (write(STDERR_FILENO, sentence, sizeof sentence - 1) < 0) _exit(1);
    abort();
}

void *memalign(size_t alignment, size_t bytes)
{
    const size_t most_extra = sizeof(header_t) + alignment;
    char *const base = bytes > SIZE_MAX - most_extra ? NULL : __libc_malloc(bytes + most_extra);
    const header_t header = {base, bytes, 0, given_out};
    uintptr_t at;
    if (!base) {
        errno = ENOMEM;
        return NULL;
    }
    at = ((uintptr_t)base + most_extra) & ~(uintptr_t)(alignment - 1);
    memcpy((header_t *)at - 1, &header, sizeof header);
    return (void *)at;
}

void free(void *memory)
{
    header_t *const header = memory ? header_of(memory) : NULL;
    if (!header) return;
    header->mark = 0;
    __libc_free(header->base);
}

void *malloc(size_t bytes) { return memalign(_Alignof(max_align_t), bytes); }

void *calloc(size_t count, size_t bytes)
{
    const int fits = bytes == 0 || count <= SIZE_MAX / bytes;
    void *const memory = malloc(fits ? count * bytes : SIZE_MAX);
    return memory ? memset(memory, 0, count * bytes) : NULL;
}

void *realloc(void *memory, size_t bytes)
{
    void *const larger = malloc(bytes);
    const size_t old = memory ? malloc_usable_size(memory) : 0;
    if (!larger) return NULL;
    memcpy(larger, memory ? memory : larger, old < bytes ? old : bytes);
    free(memory);
    return larger;
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    void *const found = memalign(alignment, bytes);
    if (!found) return ENOMEM;
    *memory = found;
    return 0;
}

size_t malloc_usable_size(void *memory) { return memory ? header_of(memory)->bytes : 0; }
