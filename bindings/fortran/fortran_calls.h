/* Finds the arguments of the C API's calls in the arrays that Fortran programs pass: addresses,
 * counts and the type. The Fortran modules of this folder call the functions (qccl_buffers.f90
 * declares them). Any thread may call them; they do not block. */
#ifndef QCCL_FORTRAN_CALLS_H
#define QCCL_FORTRAN_CALLS_H

#include "fortran_arrays.h"

/* What a function of the C API takes. qccl_buffers.f90 has the same type. A plain collective has
 * its one count in both counts; a v-form has the counts and displacements that it needs. */
typedef struct {
    const void *send;
    void *recv;
    size_t send_count;
    size_t recv_count;
    const size_t *send_counts;
    const size_t *send_displs;
    const size_t *recv_counts;
    const size_t *recv_displs;
    qcclDataType_t type;
} qcclFortranCall_t;

/* The arguments of a collective that is no v-form.
 *
 * send, recv: NULL where the caller leaves them out.
 * count, type: NULL: follow from the arrays.
 * op, root: read where the collective has one.
 * stride: of the call's config; 0: none.
 * Returns qcclInvalidArgument with a sentence, or what qcclCommCount returns. */
qcclResult_t qccl_fortran_collective(qcclFortranCall_t *call, qcclCollective_t collective,
                                     const CFI_cdesc_t *send, const CFI_cdesc_t *recv,
                                     const size_t *count, const qcclDataType_t *type,
                                     qcclRedOp_t op, int root, size_t stride, qcclComm_t comm);

/* The arguments of a v-form. The counts and displacements are contiguous vectors of integers as
 * wide as a size_t, or NULL. count: of the one part of qcclGatherV and qcclScatterV, or NULL. */
qcclResult_t qccl_fortran_v_form(qcclFortranCall_t *call, qcclCollective_t collective,
                                 const CFI_cdesc_t *send, const CFI_cdesc_t *send_counts,
                                 const CFI_cdesc_t *send_displs, const CFI_cdesc_t *recv,
                                 const CFI_cdesc_t *recv_counts, const CFI_cdesc_t *recv_displs,
                                 const size_t *count, const qcclDataType_t *type, qcclRedOp_t op,
                                 int root, qcclComm_t comm);

/* The arguments of a send, a receive or both. An array that the call does not have is NULL. */
qcclResult_t qccl_fortran_messages(qcclFortranCall_t *call, const CFI_cdesc_t *send,
                                   const size_t *send_count, const CFI_cdesc_t *recv,
                                   const size_t *recv_count, const qcclDataType_t *type,
                                   qcclComm_t comm);

#endif
