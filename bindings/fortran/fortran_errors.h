/* Keeps the sentence of what the Fortran binding itself refuses. Used by the binding's C and
 * Fortran sources. Every thread has a sentence of its own; no function blocks. */
#ifndef QCCL_FORTRAN_ERRORS_H
#define QCCL_FORTRAN_ERRORS_H

#include <qccl/qccl.h>

/* Keeps a sentence, as printf makes it, for this thread. Returns qcclInvalidArgument. */
__attribute__((format(printf, 2, 3))) qcclResult_t qccl_fortran_refuse(qcclComm_t comm,
                                                                       const char *format, ...);

/* Notes that the library has answered a call of this thread. The sentence is then no longer that of
 * the latest call on `comm`, nor, if the answer is an error, that of the thread's latest error. */
void qccl_fortran_note_answer(qcclComm_t comm, qcclResult_t result);

/* What qcclGetLastError returns, but for refusals of the binding. `comm` may be NULL. */
const char *qccl_fortran_last_error(qcclComm_t comm);

#endif
