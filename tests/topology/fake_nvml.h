/* Controls fake_nvml.c, which replaces NVIDIA's management library (NVML) in tests. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#ifdef __cplusplus
extern "C" {
#endif

/* Begins with no GPUs. `tells_types`: 1 if the library tells what a link leads to. `starts`: 1 if
 * nvmlInit succeeds. */
void fake_nvml_begin(int tells_types, int starts);
/* Returns how many users have initialised the library and not shut it down. */
int fake_nvml_users(void);
/* Adds a GPU of this PCI address and compute capability. Returns its number. */
int fake_nvml_add_gpu(const char *bus_id, int major, int minor);
/* Adds a link of a GPU. `peer`: PCI address of the other end; if its bus is 0, the library cannot
 * tell the address. `type`: 0 if the link leads to a GPU, 2 if to a switch. */
void fake_nvml_add_link(int gpu, int link, const char *peer, unsigned type, int is_active);
/* Returns the path of this library. */
const char *fake_nvml_path(void);

#ifdef __cplusplus
}
#endif
#endif
