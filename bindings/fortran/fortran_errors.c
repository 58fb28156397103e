/* The sentence of what the Fortran binding itself refuses: see fortran_errors.h. */
#include "fortran_errors.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[512];
static _Thread_local qcclComm_t refused_comm; /* whose latest call the sentence belongs to */
static _Thread_local int is_latest_error;     /* 1: no later call of this thread failed */

qcclResult_t qccl_fortran_refuse(qcclComm_t comm, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(sentence, sizeof sentence, format, values);
    va_end(values);
    refused_comm = comm;
    is_latest_error = 1;
    return qcclInvalidArgument;
}

void qccl_fortran_note_answer(qcclComm_t comm, qcclResult_t result)
{
    if (comm == refused_comm) refused_comm = NULL;
    if (result != qcclSuccess && result != qcclInProgress) is_latest_error = 0;
}

const char *qccl_fortran_last_error(qcclComm_t comm)
{
    const int is_own = comm == NULL ? is_latest_error : comm == refused_comm;
    return is_own ? sentence : qcclGetLastError(comm);
}
