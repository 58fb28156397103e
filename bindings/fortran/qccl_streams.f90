! Host streams and requests. A call on a stream goes on after it has returned: its arrays have the asynchronous attribute, so
! that the compiler keeps no copies of their elements, and stay where they are until the stream has come past the call. The
! comments of qccl.h say which procedures block, and which threads may call them.
! ierror: receives the result. Without it an error prints its sentence and stops the program.
module qccl_streams
  use, intrinsic :: iso_c_binding
  use qccl_constants
  use qccl_handles
  use qccl_errors, only: finish
  use qccl_c
  implicit none
  private
  public :: qcclStreamCreate, qcclStreamDestroy, qcclStreamSynchronize, qcclStreamQuery
  public :: qcclRequestRecord, qcclTest, qcclWait, qcclWaitAny, qcclWaitAll, qcclRequestFree

contains

  subroutine qcclStreamCreate(stream, ierror)
    type(qcclStream), intent(out) :: stream
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclStreamCreate", c_qcclStreamCreate(stream%handle), ierror=ierror)
  end subroutine

  subroutine qcclStreamDestroy(stream, ierror)
    type(qcclStream), intent(in) :: stream
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclStreamDestroy", c_qcclStreamDestroy(stream%handle), ierror=ierror)
  end subroutine

  subroutine qcclStreamSynchronize(stream, ierror)
    type(qcclStream), intent(in) :: stream
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclStreamSynchronize", c_qcclStreamSynchronize(stream%handle), ierror=ierror)
  end subroutine

  ! is_done: .true. when no work is left. It is .false. with qcclInProgress, and with an error, which is told once: work may be left.
  subroutine qcclStreamQuery(stream, is_done, ierror)
    type(qcclStream), intent(in) :: stream
    logical, intent(out) :: is_done
    integer(c_int), intent(out), optional :: ierror
    integer(c_int32_t) :: result
    result = c_qcclStreamQuery(stream%handle)
    is_done = result == qcclSuccess
    call finish("qcclStreamQuery", result, ierror=ierror)
  end subroutine

  subroutine qcclRequestRecord(stream, request, ierror)
    type(qcclStream), intent(in) :: stream
    type(qcclRequest), intent(out) :: request
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclRequestRecord", c_qcclRequestRecord(stream%handle, request%handle), ierror=ierror)
  end subroutine

  subroutine qcclTest(request, is_done, ierror)
    type(qcclRequest), intent(inout), target :: request
    logical, intent(out) :: is_done
    integer(c_int), intent(out), optional :: ierror
    integer(c_int), target :: done
    integer(c_int32_t) :: result
    done = 0
    result = c_qcclTest(c_loc(request), c_loc(done))
    is_done = done /= 0
    call finish("qcclTest", result, ierror=ierror)
  end subroutine

  subroutine qcclWait(request, ierror)
    type(qcclRequest), intent(inout), target :: request
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclWait", c_qcclWait(c_loc(request)), ierror=ierror)
  end subroutine

  ! index: the place of the request that has ended, from 1; 0: there was none.
  subroutine qcclWaitAny(requests, index, ierror)
    type(qcclRequest), intent(inout), contiguous, target :: requests(:)
    integer(c_int), intent(out) :: index
    integer(c_int), intent(out), optional :: ierror
    integer(c_int), target :: from_zero
    integer(c_int32_t) :: result
    from_zero = -1
    result = c_qcclWaitAny(size(requests, kind=c_int), address_of(requests), c_loc(from_zero))
    index = from_zero + 1
    call finish("qcclWaitAny", result, ierror=ierror)
  end subroutine

  subroutine qcclWaitAll(requests, ierror)
    type(qcclRequest), intent(inout), contiguous, target :: requests(:)
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclWaitAll", c_qcclWaitAll(size(requests, kind=c_int), address_of(requests)), ierror=ierror)
  end subroutine

  subroutine qcclRequestFree(request, ierror)
    type(qcclRequest), intent(in) :: request
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclRequestFree", c_qcclRequestFree(request%handle), ierror=ierror)
  end subroutine

  function address_of(requests) result(address)
    type(qcclRequest), intent(in), contiguous, target :: requests(:)
    type(c_ptr) :: address
    address = c_null_ptr
    if (size(requests) > 0) address = c_loc(requests)
  end function

end module qccl_streams
