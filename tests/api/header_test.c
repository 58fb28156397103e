/* Tests the public headers alone, before any other header: they include what
 * they use, and compile without warnings as C99, C11 and C++. It is built once
 * in each language; compiling is the test. */
#include <qccl/tools.h>

#include <qccl/emulated.h>

static qcclResult_t use(void)
{
    qcclConfig_t config = QCCL_CONFIG_INIT;
    qcclCollConfig_t coll_config = QCCL_COLL_CONFIG_INIT;
    qcclComm_t comm = NULL;
    qcclStream_t stream = QCCL_STREAM_SYNC;
    config.name = "header test";
    coll_config.tag = config.version;
    (void)stream;
    if (qcclCommDestroy(comm) != pqcclCommDestroy(comm)) return qcclInternalError;
    return coll_config.tag == (uint64_t)QCCL_VERSION ? qcclSuccess : qcclInternalError;
}

int main(void) { return use(); }
