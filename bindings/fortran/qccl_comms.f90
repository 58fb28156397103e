! Creates, asks and ends communicators. The comments of qccl.h say which procedures block, and which threads may call them.
! config: settings of the new communicator; left out: the defaults, or those of the communicator that it is made of.
! ierror: receives the result. Without it an error prints its sentence and stops the program.
module qccl_comms
  use, intrinsic :: iso_c_binding
  use qccl_constants
  use qccl_handles, only: qcclComm
  use qccl_config, only: qcclConfig, config_holder, fill_config, c_text
  use qccl_errors, only: finish
  use qccl_c, qcclUniqueId => c_qcclUniqueId
  implicit none
  private
  public :: qcclUniqueId, qcclGetUniqueId, qcclCommInitRank, qcclCommInitAll, qcclCommInitOob, qcclCommInitEnv, qcclCommSplit
  public :: qcclCommDup, qcclCommGrow, qcclCommShrink, qcclCommFinalize, qcclCommDestroy, qcclCommAbort, qcclCommRevoke
  public :: qcclCommGetAsyncError, qcclCommCount, qcclCommUserRank, qcclCommInitFromMpi

  abstract interface
    ! The all-gather by which the ranks of qcclCommInitOob meet: `bytes` bytes of each rank, in rank order. Returns 0.
    function qcclAllgatherFunction(mine, all, bytes, context) result(error) bind(c)
      import :: c_ptr, c_size_t, c_int
      type(c_ptr), value :: mine, all
      integer(c_size_t), value :: bytes
      type(c_ptr), value :: context
      integer(c_int) :: error
    end function
    ! What makes a communicator of an MPI communicator; qccl_mpi has one.
    function mpi_function(comm, mpi, config) result(code) bind(c)
      import :: c_ptr, c_int, c_int32_t
      type(c_ptr), intent(inout) :: comm
      integer(c_int), value :: mpi
      type(c_ptr), value :: config
      integer(c_int32_t) :: code
    end function
  end interface
  public :: qcclAllgatherFunction

contains

  subroutine qcclGetUniqueId(id, ierror)
    type(qcclUniqueId), intent(out) :: id
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclGetUniqueId", c_qcclGetUniqueId(id), ierror=ierror)
  end subroutine

  subroutine qcclCommInitRank(comm, nranks, id, rank, config, ierror)
    type(qcclComm), intent(out) :: comm
    integer(c_int), intent(in) :: nranks, rank
    type(qcclUniqueId), intent(in), target :: id
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(config_holder), target :: held
    call finish("qcclCommInitRank", &
      c_qcclCommInitRankConfig(comm%handle, nranks, c_loc(id), rank, fill_config(held, config)), ierror=ierror)
  end subroutine

  ! Makes the communicators of all ranks, for the threads of this process: comms(r + 1) is rank r's, and devices(r + 1) its
  ! device.
  subroutine qcclCommInitAll(comms, devices, ierror)
    type(qcclComm), intent(out) :: comms(:)
    character(*), intent(in), optional :: devices(:)
    integer(c_int), intent(out), optional :: ierror
    type(c_ptr) :: handles(size(comms))
    type(c_ptr), target :: names(size(comms))
    character(kind=c_char), allocatable, target :: texts(:, :)
    type(c_ptr) :: all_names
    integer(c_int32_t) :: result
    integer :: i
    handles = c_null_ptr
    names = c_null_ptr
    all_names = c_null_ptr
    if (present(devices)) then
      allocate (texts(len(devices) + 1, size(comms)))
      do i = 1, min(size(comms), size(devices))
        texts(:len_trim(devices(i)) + 1, i) = c_text(devices(i))
        names(i) = c_loc(texts(1, i))
      end do
      all_names = c_loc(names)
    end if
    result = c_qcclCommInitAll(handles, int(size(comms), c_int), all_names)
    if (result == qcclSuccess) comms%handle = handles
    call finish("qcclCommInitAll", result, ierror=ierror)
  end subroutine

  subroutine qcclCommInitOob(comm, nranks, rank, allgather, context, config, ierror)
    type(qcclComm), intent(out) :: comm
    integer(c_int), intent(in) :: nranks, rank
    procedure(qcclAllgatherFunction) :: allgather
    type(c_ptr), intent(in), optional :: context
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(c_qcclOob), target :: oob
    type(config_holder), target :: held
    oob%allgather = c_funloc(allgather)
    if (present(context)) oob%context = context
    call finish("qcclCommInitOob", &
      c_qcclCommInitOob(comm%handle, nranks, rank, c_loc(oob), fill_config(held, config)), ierror=ierror)
  end subroutine

  ! For the module qccl_mpi alone, whose function knows the program's MPI.
  subroutine qcclCommInitFromMpi(comm, mpi, make, config, ierror)
    type(qcclComm), intent(out) :: comm
    integer(c_int), intent(in) :: mpi
    procedure(mpi_function) :: make
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(config_holder), target :: held
    call finish("qcclCommInitMpi", make(comm%handle, mpi, fill_config(held, config)), ierror=ierror)
  end subroutine

  subroutine qcclCommInitEnv(comm, config, ierror)
    type(qcclComm), intent(out) :: comm
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(config_holder), target :: held
    call finish("qcclCommInitEnv", c_qcclCommInitEnv(comm%handle, fill_config(held, config)), ierror=ierror)
  end subroutine

  subroutine qcclCommSplit(comm, color, key, part, config, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(in) :: color, key
    type(qcclComm), intent(out) :: part
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(config_holder), target :: held
    call finish("qcclCommSplit", c_qcclCommSplit(comm%handle, color, key, part%handle, fill_config(held, config)), comm, &
      ierror=ierror)
  end subroutine

  subroutine qcclCommDup(comm, copy, config, ierror)
    type(qcclComm), intent(in) :: comm
    type(qcclComm), intent(out) :: copy
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(config_holder), target :: held
    call finish("qcclCommDup", c_qcclCommDup(comm%handle, copy%handle, fill_config(held, config)), comm, ierror=ierror)
  end subroutine

  ! A new rank passes qcclComm() as comm. A rank of comm passes -1 as rank, and may leave out the id if another one passes it.
  subroutine qcclCommGrow(comm, nranks, id, rank, grown, config, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(in) :: nranks, rank
    type(qcclUniqueId), intent(in), optional, target :: id
    type(qcclComm), intent(out) :: grown
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(config_holder), target :: held
    type(c_ptr) :: where
    where = c_null_ptr
    if (present(id)) where = c_loc(id)
    call finish("qcclCommGrow", c_qcclCommGrow(comm%handle, nranks, where, rank, grown%handle, fill_config(held, config)), comm, &
      ierror=ierror)
  end subroutine

  subroutine qcclCommShrink(comm, rest, exclude, config, flags, ierror)
    type(qcclComm), intent(in) :: comm
    type(qcclComm), intent(out) :: rest
    integer(c_int), intent(in), optional, contiguous, target :: exclude(:)
    type(qcclConfig), intent(in), optional :: config
    integer(c_int), intent(in), optional :: flags
    integer(c_int), intent(out), optional :: ierror
    type(config_holder), target :: held
    type(c_ptr) :: excluded
    integer(c_int) :: count, all_flags
    excluded = c_null_ptr
    count = 0
    all_flags = QCCL_SHRINK_DEFAULT
    if (present(exclude)) count = size(exclude, kind=c_int)
    if (count > 0) excluded = c_loc(exclude)
    if (present(flags)) all_flags = flags
    call finish("qcclCommShrink", &
      c_qcclCommShrink(comm%handle, excluded, count, rest%handle, fill_config(held, config), all_flags), comm, ierror=ierror)
  end subroutine

  subroutine qcclCommFinalize(comm, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCommFinalize", c_qcclCommFinalize(comm%handle), comm, ierror=ierror)
  end subroutine

  subroutine qcclCommDestroy(comm, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCommDestroy", c_qcclCommDestroy(comm%handle), comm, ierror=ierror)
  end subroutine

  subroutine qcclCommAbort(comm, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCommAbort", c_qcclCommAbort(comm%handle), comm, ierror=ierror)
  end subroutine

  subroutine qcclCommRevoke(comm, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCommRevoke", c_qcclCommRevoke(comm%handle), comm, ierror=ierror)
  end subroutine

  ! result: the code that failed the communicator, or its creation; qcclInProgress; or qcclSuccess.
  subroutine qcclCommGetAsyncError(comm, result, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out) :: result
    integer(c_int), intent(out), optional :: ierror
    result = qcclSuccess
    call finish("qcclCommGetAsyncError", c_qcclCommGetAsyncError(comm%handle, result), ierror=ierror)
  end subroutine

  subroutine qcclCommCount(comm, count, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out) :: count
    integer(c_int), intent(out), optional :: ierror
    count = 0
    call finish("qcclCommCount", c_qcclCommCount(comm%handle, count), ierror=ierror)
  end subroutine

  ! Ranks count from 0, as in MPI.
  subroutine qcclCommUserRank(comm, rank, ierror)
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out) :: rank
    integer(c_int), intent(out), optional :: ierror
    rank = 0
    call finish("qcclCommUserRank", c_qcclCommUserRank(comm%handle, rank), ierror=ierror)
  end subroutine

end module qccl_comms
