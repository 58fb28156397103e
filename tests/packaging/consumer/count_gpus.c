/* Prints how many GPUs the CPU emulates. */
#include <qccl/emulated.h>
#include <stdio.h>

int main(void)
{
    int count = 0;
    if (qcclEmulatedGetDeviceCount(&count) != qcclEmulatedSuccess) return 1;
    printf("%d GPUs\n", count);
    return 0;
}
