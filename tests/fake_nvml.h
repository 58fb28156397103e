/* Steers fake_nvml.c. */
#ifndef FAKE_NVML_H
#define FAKE_NVML_H

#ifdef __cplusplus
extern "C" {
#endif

/* Without GPUs. `tells_types`: whether it says what a link leads to; `starts`: whether it can be
 * used at all. */
void fake_nvml_begin(int tells_types, int starts);
/* Who has it open. */
int fake_nvml_users(void);
/* Returns the GPU's number. */
int fake_nvml_add_gpu(const char *bus_id, int major, int minor);
/* type: 0 to a GPU, 2 to a switch. Of a peer on bus 0 the driver cannot say where it is. */
void fake_nvml_add_link(int gpu, int link, const char *peer, unsigned type, int is_active);
/* Of this library. */
const char *fake_nvml_path(void);

#ifdef __cplusplus
}
#endif
#endif
