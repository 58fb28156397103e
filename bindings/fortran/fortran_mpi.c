/* Makes a communicator of the MPI communicator that a Fortran program names. QCCL installs this
 * file as source, because it is compiled with the program's own MPI: see qccl_mpi.F90, which calls
 * it. It blocks as qcclCommInitMpi does. */
#include <qccl/mpi.h>

qcclResult_t qccl_fortran_init_mpi(qcclComm_t *comm_out, MPI_Fint mpi, const qcclConfig_t *config);

qcclResult_t qccl_fortran_init_mpi(qcclComm_t *comm_out, MPI_Fint mpi, const qcclConfig_t *config)
{
    int is_running = 0, has_ended = 0;
    /* The handle of Fortran has a meaning only while MPI runs. */
    MPI_Initialized(&is_running);
    MPI_Finalized(&has_ended);
    return qcclCommInitMpi(comm_out, is_running && !has_ended ? MPI_Comm_f2c(mpi) : MPI_COMM_NULL,
                           config);
}
