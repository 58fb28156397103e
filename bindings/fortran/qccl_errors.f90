! Versions and errors, and the end of every call of the binding: the caller's ierror, or a stop with the library's sentence.
! Any thread may call the procedures; they do not block.
module qccl_errors
  use, intrinsic :: iso_c_binding
  use qccl_constants, only: qcclSuccess, qcclInProgress
  use qccl_handles, only: qcclComm
  use qccl_c, qcclErrorInfo => c_qcclErrorInfo
  implicit none
  private
  public :: qcclErrorInfo, qcclGetVersion, qcclGetErrorString, qcclGetLastError, qcclGetErrorInfo, qcclString
  public :: finish ! of the binding alone

  interface
    subroutine note_answer(comm, result) bind(c, name="qccl_fortran_note_answer")
      import
      type(c_ptr), value :: comm
      integer(c_int32_t), value :: result
    end subroutine
    function last_error(comm) result(text) bind(c, name="qccl_fortran_last_error")
      import
      type(c_ptr), value :: comm
      type(c_ptr) :: text
    end function
    pure function c_strlen(text) result(length) bind(c, name="strlen")
      import
      type(c_ptr), value :: text
      integer(c_size_t) :: length
    end function
  end interface

contains

  ! The text of a C string, such as a log function receives.
  function qcclString(pointer) result(text)
    type(c_ptr), value :: pointer
    character(:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i
    call c_f_pointer(pointer, characters, [c_strlen(pointer)])
    allocate (character(size(characters)) :: text)
    do i = 1, size(characters)
      text(i:i) = characters(i)
    end do
  end function

  subroutine qcclGetVersion(version, ierror)
    integer(c_int), intent(out) :: version
    integer(c_int), intent(out), optional :: ierror
    version = 0
    call finish("qcclGetVersion", c_qcclGetVersion(version), ierror=ierror)
  end subroutine

  ! A few words that describe a result.
  function qcclGetErrorString(result) result(text)
    integer(c_int), intent(in) :: result
    character(:), allocatable :: text
    text = qcclString(c_qcclGetErrorString(result))
  end function

  ! The sentence of the communicator's latest call, or, without one, of this thread's latest error. Sentences of what the
  ! binding itself refused belong to the calling thread.
  function qcclGetLastError(comm) result(text)
    type(qcclComm), intent(in), optional :: comm
    character(:), allocatable :: text
    if (present(comm)) then
      text = qcclString(last_error(comm%handle))
    else
      text = qcclString(last_error(c_null_ptr))
    end if
  end function

  ! The parts of the communicator's latest error, as the library has them: refusals of the binding have none.
  subroutine qcclGetErrorInfo(comm, info, ierror)
    type(qcclComm), intent(in) :: comm
    type(qcclErrorInfo), intent(out) :: info
    integer(c_int), intent(out), optional :: ierror
    info%size = c_sizeof(info)
    call finish("qcclGetErrorInfo", c_qcclGetErrorInfo(comm%handle, info), ierror=ierror)
  end subroutine

  ! The end of every call. refused: the binding itself refused the call, and has kept its own sentence.
  subroutine finish(name, result, comm, refused, ierror)
    character(*), intent(in) :: name
    integer(c_int32_t), intent(in) :: result
    type(qcclComm), intent(in), optional :: comm
    logical, intent(in), optional :: refused
    integer(c_int), intent(out), optional :: ierror
    type(c_ptr) :: handle
    logical :: is_own
    handle = c_null_ptr
    if (present(comm)) handle = comm%handle
    is_own = .false.
    if (present(refused)) is_own = refused
    if (.not. is_own) call note_answer(handle, result)
    if (present(ierror)) then
      ierror = result
    else if (result /= qcclSuccess .and. result /= qcclInProgress) then
      error stop name // ": " // qcclGetLastError()
    end if
  end subroutine

end module qccl_errors
