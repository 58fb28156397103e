/* A second name for every function of qccl.h, for tools that stand between a program and QCCL, such
 * as profilers. The second name is the first with a `p` before it. A tool defines qcclAllReduce
 * itself, does its own work, and calls pqcclAllReduce, which is the library's function: arguments,
 * results and rules for threads are those of qcclAllReduce in qccl.h. */
#ifndef QCCL_TOOLS_H
#define QCCL_TOOLS_H

#include <qccl/qccl.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Declares the second name with the type of the function. */
#define QCCL_TWIN_OF(function) QCCL_API __typeof__(function) p##function

QCCL_TWIN_OF(qcclGetVersion);
QCCL_TWIN_OF(qcclGetErrorString);
QCCL_TWIN_OF(qcclGetLastError);
QCCL_TWIN_OF(qcclGetErrorInfo);
QCCL_TWIN_OF(qcclConfigInit);

QCCL_TWIN_OF(qcclGetUniqueId);
QCCL_TWIN_OF(qcclCommInitRank);
QCCL_TWIN_OF(qcclCommInitRankConfig);
QCCL_TWIN_OF(qcclCommInitAll);
QCCL_TWIN_OF(qcclCommInitOob);
QCCL_TWIN_OF(qcclCommInitEnv);
QCCL_TWIN_OF(qcclCommFinalize);
QCCL_TWIN_OF(qcclCommDestroy);
QCCL_TWIN_OF(qcclCommAbort);
QCCL_TWIN_OF(qcclCommRevoke);
QCCL_TWIN_OF(qcclCommSplit);
QCCL_TWIN_OF(qcclCommDup);
QCCL_TWIN_OF(qcclCommGrow);
QCCL_TWIN_OF(qcclCommShrink);
QCCL_TWIN_OF(qcclCommGetAsyncError);
QCCL_TWIN_OF(qcclCommCount);
QCCL_TWIN_OF(qcclCommUserRank);

QCCL_TWIN_OF(qcclAllReduce);
QCCL_TWIN_OF(qcclAllReduceConfig);
QCCL_TWIN_OF(qcclReduceScatter);
QCCL_TWIN_OF(qcclReduceScatterConfig);
QCCL_TWIN_OF(qcclAllGather);
QCCL_TWIN_OF(qcclAllGatherConfig);
QCCL_TWIN_OF(qcclBroadcast);
QCCL_TWIN_OF(qcclBroadcastConfig);
QCCL_TWIN_OF(qcclReduce);
QCCL_TWIN_OF(qcclReduceConfig);
QCCL_TWIN_OF(qcclGather);
QCCL_TWIN_OF(qcclGatherConfig);
QCCL_TWIN_OF(qcclScatter);
QCCL_TWIN_OF(qcclScatterConfig);
QCCL_TWIN_OF(qcclAllToAll);
QCCL_TWIN_OF(qcclAllToAllConfig);
QCCL_TWIN_OF(qcclAllGatherV);
QCCL_TWIN_OF(qcclAllGatherVConfig);
QCCL_TWIN_OF(qcclReduceScatterV);
QCCL_TWIN_OF(qcclReduceScatterVConfig);
QCCL_TWIN_OF(qcclGatherV);
QCCL_TWIN_OF(qcclGatherVConfig);
QCCL_TWIN_OF(qcclScatterV);
QCCL_TWIN_OF(qcclScatterVConfig);
QCCL_TWIN_OF(qcclAllToAllV);
QCCL_TWIN_OF(qcclAllToAllVConfig);
QCCL_TWIN_OF(qcclScan);
QCCL_TWIN_OF(qcclScanConfig);
QCCL_TWIN_OF(qcclExscan);
QCCL_TWIN_OF(qcclExscanConfig);
QCCL_TWIN_OF(qcclSend);
QCCL_TWIN_OF(qcclSendConfig);
QCCL_TWIN_OF(qcclRecv);
QCCL_TWIN_OF(qcclRecvConfig);
QCCL_TWIN_OF(qcclSendRecv);
QCCL_TWIN_OF(qcclSendRecvConfig);
QCCL_TWIN_OF(qcclSumExact);
QCCL_TWIN_OF(qcclBarrier);
QCCL_TWIN_OF(qcclBarrierConfig);

QCCL_TWIN_OF(qcclGroupStart);
QCCL_TWIN_OF(qcclGroupEnd);

QCCL_TWIN_OF(qcclCollCreate);
QCCL_TWIN_OF(qcclCollCreateV);
QCCL_TWIN_OF(qcclCollStart);
QCCL_TWIN_OF(qcclCollFree);

QCCL_TWIN_OF(qcclRedOpCreate);
QCCL_TWIN_OF(qcclRedOpCreatePreMulSum);
QCCL_TWIN_OF(qcclRedOpDestroy);

QCCL_TWIN_OF(qcclCodecCreate);
QCCL_TWIN_OF(qcclCodecDestroy);
QCCL_TWIN_OF(qcclCodecGetSpec);
QCCL_TWIN_OF(qcclCodecMaxEncodedBytes);
QCCL_TWIN_OF(qcclCodecEncode);
QCCL_TWIN_OF(qcclCodecDecode);
QCCL_TWIN_OF(qcclLayerCodecsCreate);
QCCL_TWIN_OF(qcclLayerCodecsNote);
QCCL_TWIN_OF(qcclLayerCodecsDecide);
QCCL_TWIN_OF(qcclLayerCodecsGet);
QCCL_TWIN_OF(qcclLayerCodecsDescribe);
QCCL_TWIN_OF(qcclLayerCodecsDestroy);
QCCL_TWIN_OF(qcclStateCreate);
QCCL_TWIN_OF(qcclStateBytes);
QCCL_TWIN_OF(qcclStateSave);
QCCL_TWIN_OF(qcclStateLoad);
QCCL_TWIN_OF(qcclStateReset);
QCCL_TWIN_OF(qcclStateDestroy);

QCCL_TWIN_OF(qcclStreamCreate);
QCCL_TWIN_OF(qcclStreamDestroy);
QCCL_TWIN_OF(qcclStreamSynchronize);
QCCL_TWIN_OF(qcclStreamQuery);

QCCL_TWIN_OF(qcclRequestRecord);
QCCL_TWIN_OF(qcclTest);
QCCL_TWIN_OF(qcclWait);
QCCL_TWIN_OF(qcclWaitAny);
QCCL_TWIN_OF(qcclWaitAll);
QCCL_TWIN_OF(qcclRequestFree);

QCCL_TWIN_OF(qcclMemAlloc);
QCCL_TWIN_OF(qcclMemFree);
QCCL_TWIN_OF(qcclCommRegister);
QCCL_TWIN_OF(qcclCommDeregister);

QCCL_TWIN_OF(qcclExplain);
QCCL_TWIN_OF(qcclCommGetStats);

#undef QCCL_TWIN_OF

#ifdef __cplusplus
}
#endif

#endif
