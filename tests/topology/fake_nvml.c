/* Replaces NVIDIA's management library in tests; the test defines the GPUs and links. */
#define _GNU_SOURCE
#include "fake_nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#pragma GCC visibility push(default)

enum { most_gpus = 8, most_links = 18, success = 0, not_supported = 3, not_found = 6 };

static struct {
    char bus_id[32];
    int major, minor;
    struct {
        int is_active;
        unsigned domain, bus, device, type;
    } links[most_links];
} gpus[most_gpus];
static int gpus_there, cannot_tell, cannot_start, users;

void fake_nvml_begin(int tells_types, int starts)
{
    memset(gpus, 0, sizeof gpus);
    gpus_there = 0;
    cannot_tell = !tells_types;
    cannot_start = !starts;
}

int fake_nvml_users(void) { return users; }

int fake_nvml_add_gpu(const char *bus_id, int major, int minor)
{
    snprintf(gpus[gpus_there].bus_id, sizeof gpus[0].bus_id, "%s", bus_id);
    gpus[gpus_there].major = major;
    gpus[gpus_there].minor = minor;
    return gpus_there++;
}

void fake_nvml_add_link(int gpu, int link, const char *peer, unsigned type, int is_active)
{
    unsigned function = 0;
    gpus[gpu].links[link].is_active = is_active;
    gpus[gpu].links[link].type = type;
    sscanf(peer, "%x:%x:%x.%x", &gpus[gpu].links[link].domain, &gpus[gpu].links[link].bus,
           &gpus[gpu].links[link].device, &function);
}

const char *fake_nvml_path(void)
{
    Dl_info info;
    return dladdr((void *)&fake_nvml_path, &info) ? info.dli_fname : "";
}

/* ---- The library's functions. A handle is the GPU's number plus 1. */

struct pci_info {
    char old_bus_id[16];
    unsigned domain, bus, device, ids, subsystem_ids;
    char bus_id[32];
};

static int number_of(void *handle) { return (int)(size_t)handle - 1; }

int nvmlInit_v2(void)
{
    if (cannot_start) return not_supported;
    users++;
    return success;
}

int nvmlShutdown(void)
{
    users--;
    return success;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **handle)
{
    for (int i = 0; i < gpus_there; i++) {
        if (strcmp(gpus[i].bus_id, bus_id) != 0) continue;
        *handle = (void *)(size_t)(i + 1);
        return success;
    }
    return not_found;
}

int nvmlDeviceGetCudaComputeCapability(void *gpu, int *major, int *minor)
{
    *major = gpus[number_of(gpu)].major;
    *minor = gpus[number_of(gpu)].minor;
    return success;
}

int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *is_active)
{
    if (link >= most_links) return not_supported;
    *is_active = (unsigned)gpus[number_of(gpu)].links[link].is_active;
    return success;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *gpu, unsigned link, struct pci_info *info)
{
    if (gpus[number_of(gpu)].links[link].bus == 0) return not_supported;
    memset(info, 0xFF, sizeof *info);
    info->domain = gpus[number_of(gpu)].links[link].domain;
    info->bus = gpus[number_of(gpu)].links[link].bus;
    info->device = gpus[number_of(gpu)].links[link].device;
    return success;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *gpu, unsigned link, unsigned *type)
{
    if (cannot_tell) return not_supported;
    *type = gpus[number_of(gpu)].links[link].type;
    return success;
}
