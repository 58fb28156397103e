! The C API of QCCL for Fortran: programs use this module and link libqccl_fortran. qccl.h is the manual; procedures,
! constants and types have its names, without the _t. What differs is said where the modules below declare it.
!
!   use qccl
!   type(qcclComm) :: comm
!   call qcclCommInitEnv(comm)
!   call qcclAllReduce(QCCL_IN_PLACE, gradient, comm) ! of any rank and type
!   call qcclCommDestroy(comm)
module qccl
  use qccl_constants
  use qccl_handles
  use qccl_config, only: qcclConfig, qcclCollConfig, qcclLayer, qcclStateConfig, qcclIdleFunction, qcclLogFunction
  use qccl_errors, only: qcclErrorInfo, qcclGetVersion, qcclGetErrorString, qcclGetLastError, qcclGetErrorInfo, qcclString
  use qccl_comms, only: qcclUniqueId, qcclGetUniqueId, qcclCommInitRank, qcclCommInitAll, qcclCommInitOob, qcclCommInitEnv, &
    qcclCommSplit, qcclCommDup, qcclCommGrow, qcclCommShrink, qcclCommFinalize, qcclCommDestroy, qcclCommAbort, qcclCommRevoke, &
    qcclCommGetAsyncError, qcclCommCount, qcclCommUserRank, qcclAllgatherFunction
  use qccl_collectives
  use qccl_v_forms
  use qccl_messages
  use qccl_objects
  use qccl_layers
  use qccl_streams
  implicit none
  public
end module qccl
