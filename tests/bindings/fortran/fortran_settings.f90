! Each component of the configs reaches the library. Two or more ranks, with QCCL_DEBUG=info.
module settings_functions
  use, intrinsic :: iso_c_binding
  use qccl, only: qcclString
  implicit none
  integer, save :: lines = 0, named_lines = 0
  interface
    function c_usleep(microseconds) result(error) bind(c, name="usleep")
      import :: c_int
      integer(c_int), value :: microseconds
      integer(c_int) :: error
    end function
  end interface

contains

  subroutine count_idle(context) bind(c)
    type(c_ptr), value :: context
    integer, pointer :: calls
    call c_f_pointer(context, calls)
    calls = calls + 1
  end subroutine

  subroutine keep_line(level, line, context) bind(c)
    integer(c_int32_t), value :: level
    type(c_ptr), value :: line, context
    integer, pointer :: expected
    call c_f_pointer(context, expected)
    if (expected == 42 .and. level >= 1 .and. level <= 3) lines = lines + 1
    if (index(qcclString(line), "named by fortran") > 0) named_lines = named_lines + 1
  end subroutine

  subroutine sleep_for(seconds)
    real, intent(in) :: seconds
    integer(c_int) :: ignored
    ignored = c_usleep(nint(1e6 * seconds))
  end subroutine
end module settings_functions

program fortran_settings
  use, intrinsic :: iso_c_binding
  use qccl
  use fortran_checks
  use settings_functions
  implicit none
  type(qcclComm) :: comm
  integer :: rank, ranks, ierror
  call qcclCommInitEnv(comm)
  call qcclCommUserRank(comm, rank)
  call qcclCommCount(comm, ranks)
  call name_choices()
  call name_device()
  call wait_times()
  call call_functions()
  call compare_fusion()
  call make_nonblocking()
  call set_calls()
  call set_strides()
  call qcclCommDestroy(comm)
  call end_of_checks(20)

contains

  subroutine name_choices()
    type(qcclConfig) :: config
    type(qcclComm) :: other
    character(:), allocatable :: text
    character(8) :: blank_padded
    call qcclExplain(comm, "all_reduce bytes=1M type=float", text)
    call check(index(text, "config") == 0 .and. index(text, "reproducible:") == 0, "no choice by a config without one")
    blank_padded = "int8"
    config%codec = blank_padded
    config%algorithm = "ring"
    config%reproducible = .true.
    config%name = " "
    call qcclCommDup(comm, other, config)
    call qcclExplain(other, "all_reduce bytes=1M type=float", text)
    call check_sentence(text, "codec int8 by the communicator's config")
    call check_sentence(text, "algorithm ring by the communicator's config")
    call check_sentence(text, "reproducible:")
    call qcclCommDestroy(other)
    call qcclExplain(comm, "all_gather bytes=banana", text, ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), "banana")
  end subroutine

  subroutine name_device()
    type(qcclConfig) :: config
    type(qcclComm) :: other
    config%device = "abacus:7"
    call qcclCommInitRank(other, 1, qcclUniqueId(), 0, config, ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), "abacus:7")
    call check(other == qcclComm(), "no communicator")
  end subroutine

  subroutine wait_times()
    type(qcclConfig) :: config
    type(qcclComm) :: other
    type(qcclErrorInfo) :: info
    integer :: one
    config%peer_timeout = -1
    call qcclCommDup(comm, other, config, ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(), "peer_timeout")
    config%peer_timeout = 0
    config%timeout = 0.3
    call qcclCommDup(comm, other, config)
    one = 1
    if (rank == 0) then
      call qcclAllReduce(QCCL_IN_PLACE, one, other, config=qcclCollConfig(tag=77), ierror=ierror)
      call check_refused(ierror, qcclTimeout, qcclGetLastError(other), "0.3")
      call qcclGetErrorInfo(other, info)
      call check(info%code == qcclTimeout .and. info%tag == 77 .and. info%call == 1, "the parts of a timeout")
      call check(info%collective == qcclCollAllReduce .and. info%rank == 0 .and. info%peer == 1, "who did not come")
    end if
    call qcclBarrier(comm)
    call qcclCommDestroy(other, ierror)
    call qcclCommDup(comm, other)
    if (rank == 0) call qcclAllReduce(QCCL_IN_PLACE, one, other, config=qcclCollConfig(timeout=0.2_c_double), &
      ierror=ierror)
    if (rank == 0) call check_refused(ierror, qcclTimeout, qcclGetLastError(other), "0.2")
    call qcclBarrier(comm)
    call qcclCommDestroy(other, ierror)
  end subroutine

  subroutine call_functions()
    type(qcclConfig) :: config
    type(qcclComm) :: other
    integer, target :: calls, number
    calls = 0
    number = 42
    config%idle => count_idle
    config%idle_context = c_loc(calls)
    config%log => keep_line
    config%log_context = c_loc(number)
    config%name = "named by fortran"
    call qcclCommDup(comm, other, config)
    if (rank == 1) call sleep_for(0.5)
    call qcclBarrier(other)
    if (rank == 0) call check(calls > 0, "the idle function is called while rank 1 sleeps")
    call qcclCommDestroy(other)
    call check(lines > 0, "the log function gets lines")
    call check(named_lines > 0, "lines have the communicator's name")
  end subroutine

  subroutine compare_fusion()
    type(qcclConfig) :: config
    type(qcclComm) :: other
    config%fusion = 1024 * (rank + 1)
    call qcclCommDup(comm, other, config, ierror)
    call check_refused(ierror, qcclMismatch, qcclGetLastError(), "fusion")
    call check_sentence(qcclGetLastError(), "1024")
  end subroutine

  subroutine make_nonblocking()
    type(qcclConfig) :: config
    type(qcclComm) :: other
    integer :: result, one
    config%nonblocking = .true.
    call qcclCommDup(comm, other, config, ierror)
    call check(ierror == qcclInProgress .and. other /= qcclComm(), "a nonblocking creation")
    do
      call qcclCommGetAsyncError(other, result)
      if (result /= qcclInProgress) exit
    end do
    one = 1
    call qcclAllReduce(QCCL_IN_PLACE, one, other)
    call check(result == qcclSuccess .and. one == ranks, "a communicator that was made meanwhile")
    call qcclCommFinalize(other, ierror)
    call check(ierror == qcclInProgress .or. ierror == qcclSuccess, "a nonblocking finalize")
    call qcclCommDestroy(other)
  end subroutine

  subroutine set_calls()
    type(qcclCollConfig) :: config
    type(qcclCodec) :: coarse, fine
    real :: values(1000), exact(1000)
    integer :: i
    config%algorithm = "abacus"
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, config=config, ierror=ierror)
    call check_refused(ierror, qcclInvalidArgument, qcclGetLastError(comm), "abacus")
    config%algorithm = "ring"
    exact = [(sin(real(i)) * ranks, i = 1, 1000)]
    call qcclCodecCreate(coarse, "int4")
    call qcclCodecCreate(fine, "bf16")
    config%codec = coarse
    values = exact / ranks
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, config=config)
    call check(error_of(values, exact) > 0.02, "the codec of a call's config")
    values = exact / ranks
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, config=config, codec=fine)
    call check(error_of(values, exact) > 1e-4 .and. error_of(values, exact) < 0.01, "codec takes the place of config%codec")
    values = exact / ranks
    call qcclAllReduce(QCCL_IN_PLACE, values, comm, codec=fine)
    call check(error_of(values, exact) > 1e-4 .and. error_of(values, exact) < 0.01, "codec without a config")
    call check(coarse /= fine .and. coarse == config%codec, "codecs are compared")
    call qcclCodecDestroy(coarse)
    call qcclCodecDestroy(fine)
  end subroutine

  real function error_of(values, exact)
    real, intent(in) :: values(:), exact(:)
    error_of = norm2(values - exact) / norm2(exact)
  end function

  subroutine set_strides()
    integer :: mine(2), every(3, ranks), r
    mine = [10 * rank + 1, 10 * rank + 2]
    every = 0
    call qcclAllGather(mine, every, comm, config=qcclCollConfig(stride=3))
    call check(all(every(1, :) == [(10 * r + 1, r = 0, ranks - 1)]) .and. all(every(3, :) == 0), "blocks with a stride")
    every = 0
    every(:2, rank + 1) = mine
    call qcclAllGather(QCCL_IN_PLACE, every, comm, count=2_c_size_t, config=qcclCollConfig(stride=3))
    call check(all(every(2, :) == [(10 * r + 2, r = 0, ranks - 1)]) .and. all(every(3, :) == 0), "a stride in place")
    every = spread(mine(1) - 1 + [(1, r = 1, 3)], 2, ranks)
    call qcclReduceScatter(QCCL_IN_PLACE, every, comm, count=2_c_size_t, config=qcclCollConfig(stride=3))
    call check(every(2, rank + 1) == sum([(10 * r + 1, r = 0, ranks - 1)]), "a reduce-scatter with a stride in place")
  end subroutine

end program fortran_settings
