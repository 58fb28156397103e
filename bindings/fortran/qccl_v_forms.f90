! V-forms, whose parts have counts of their own, and their prepared calls. qccl_collectives.f90 describes the arguments that
! they share with other collectives; they block as those do.
!
!   counts, displs  an entry for each rank, in elements, of kind c_size_t (QCCL_COUNT_KIND). Part r begins displs(r + 1)
!                   elements behind the start of the array. Without displs the parts follow one another.
! In place (send = QCCL_IN_PLACE) recv holds the parts of all ranks, also where only send has them otherwise.
module qccl_v_forms
  use, intrinsic :: iso_c_binding
  use qccl_constants
  use qccl_handles
  use qccl_config, only: qcclCollConfig, coll_config_holder, fill_coll_config
  use qccl_errors, only: finish
  use qccl_buffers, only: call_arguments, read_v_form
  use qccl_c
  implicit none
  private
  public :: qcclAllGatherV, qcclReduceScatterV, qcclGatherV, qcclScatterV, qcclAllToAllV, qcclCollCreateV

  integer, parameter, public :: QCCL_COUNT_KIND = c_size_t

contains

  ! Leaves the parts of all ranks on every rank. All ranks pass the same counts.
  subroutine qcclAllGatherV(send, recv, counts, comm, displs, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_size_t), intent(in), contiguous, target :: counts(:)
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional, contiguous, target :: displs(:)
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclAllGatherV", qcclCollAllGatherV, send, recv, comm, recv_counts=counts, recv_displs=displs, &
      datatype=datatype, stream=stream, config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Combines the vectors of all ranks, and leaves part r of the result on rank r. All ranks pass the same counts.
  subroutine qcclReduceScatterV(send, recv, counts, comm, displs, op, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_size_t), intent(in), contiguous, target :: counts(:)
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional, contiguous, target :: displs(:)
    type(qcclRedOp), intent(in), optional :: op
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclReduceScatterV", qcclCollReduceScatterV, send, recv, comm, send_counts=counts, send_displs=displs, op=op, &
      datatype=datatype, stream=stream, config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Leaves the parts of all ranks on the root. Other ranks need no recv and no counts. count: of this rank's part.
  subroutine qcclGatherV(send, recv, counts, root, comm, displs, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), optional, target, asynchronous :: recv
    integer(c_size_t), intent(in), optional, contiguous, target :: counts(:)
    integer(c_int), intent(in) :: root
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional, contiguous, target :: displs(:)
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclGatherV", qcclCollGatherV, send, recv, comm, recv_counts=counts, recv_displs=displs, root=root, &
      count=count, datatype=datatype, stream=stream, config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Leaves part r of the root's vector on rank r. Other ranks need no send and no counts. count: of this rank's part.
  subroutine qcclScatterV(send, counts, recv, root, comm, displs, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), optional, target, asynchronous :: send
    integer(c_size_t), intent(in), optional, contiguous, target :: counts(:)
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_int), intent(in) :: root
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional, contiguous, target :: displs(:)
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclScatterV", qcclCollScatterV, send, recv, comm, send_counts=counts, send_displs=displs, root=root, &
      count=count, datatype=datatype, stream=stream, config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Part j of rank i's vector becomes part i of rank j's. In place the counts and displacements are those of recv.
  subroutine qcclAllToAllV(send, send_counts, recv, recv_counts, comm, send_displs, recv_displs, datatype, stream, config, codec, &
      ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    integer(c_size_t), intent(in), contiguous, target :: send_counts(:)
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_size_t), intent(in), contiguous, target :: recv_counts(:)
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional, contiguous, target :: send_displs(:), recv_displs(:)
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclAllToAllV", qcclCollAllToAllV, send, recv, comm, send_counts, send_displs, recv_counts, recv_displs, &
      datatype=datatype, stream=stream, config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Prepares a call of a v-form, as qcclCollCreate prepares one of another collective. The counts and displacements are those
  ! of the buffer whose parts they describe, and are read only during this procedure.
  subroutine qcclCollCreateV(coll, collective, send, recv, comm, send_counts, send_displs, recv_counts, recv_displs, op, root, &
      count, datatype, stream, config, codec, ierror)
    type(qcclColl), intent(out) :: coll
    integer(c_int), intent(in) :: collective
    type(*), dimension(..), intent(in), optional, target, asynchronous :: send
    type(*), dimension(..), intent(inout), optional, target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional, contiguous, target :: send_counts(:), send_displs(:), recv_counts(:), recv_displs(:)
    type(qcclRedOp), intent(in), optional :: op
    integer(c_int), intent(in), optional :: root
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclCollCreateV", collective, send, recv, comm, send_counts, send_displs, recv_counts, recv_displs, op, root, &
      count, datatype, stream, config, codec, coll, ierror)
  end subroutine

  ! Makes the call, or prepares it where there is a `coll`.
  subroutine make_call(name, collective, send, recv, comm, send_counts, send_displs, recv_counts, recv_displs, op, root, count, &
      datatype, stream, config, codec, coll, ierror)
    character(*), intent(in) :: name
    integer(c_int), intent(in) :: collective
    type(*), dimension(..), intent(in), optional, target, asynchronous :: send
    type(*), dimension(..), optional, target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional, contiguous, target :: send_counts(:), send_displs(:), recv_counts(:), recv_displs(:)
    type(qcclRedOp), intent(in), optional :: op
    integer(c_int), intent(in), optional :: root
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    type(qcclColl), intent(out), optional :: coll
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments), target :: a
    type(coll_config_holder), target :: held
    type(qcclStream) :: where
    type(qcclRedOp) :: what
    type(c_ptr) :: settings
    integer(c_int) :: from
    integer(c_int32_t) :: result
    if (present(op)) what = op
    if (present(stream)) where = stream
    from = 0
    if (present(root)) from = root
    result = read_v_form(a, collective, send, send_counts, send_displs, recv, recv_counts, recv_displs, count, datatype, &
      what%value, from, comm%handle)
    if (result /= qcclSuccess) then
      call finish(name, result, comm, .true., ierror)
      return
    end if
    settings = fill_coll_config(held, config, codec)
    if (present(coll)) then
      ! The one part of a gather or a scatter is the first of the counts.
      if (collective == qcclCollGatherV) a%send_counts = c_loc(a%send_count)
      if (collective == qcclCollScatterV) a%recv_counts = c_loc(a%recv_count)
      result = c_qcclCollCreateV(coll%handle, collective, a%send, a%send_counts, a%send_displs, a%recv, a%recv_counts, &
        a%recv_displs, a%datatype, what%value, from, comm%handle, where%handle, settings)
    else
      result = started(collective, a, what%value, from, comm%handle, where%handle, settings)
    end if
    call finish(name, result, comm, ierror=ierror)
  end subroutine

  ! The result of the C API's function.
  function started(collective, a, op, root, comm, stream, settings) result(code)
    integer(c_int), intent(in) :: collective, root
    type(call_arguments), intent(in) :: a
    integer(c_int32_t), intent(in) :: op
    type(c_ptr), intent(in) :: comm, stream, settings
    integer(c_int32_t) :: code
    select case (collective)
    case (qcclCollAllGatherV)
      code = c_qcclAllGatherVConfig(a%send, a%recv, a%recv_counts, a%recv_displs, a%datatype, comm, stream, settings)
    case (qcclCollReduceScatterV)
      code = c_qcclReduceScatterVConfig(a%send, a%recv, a%send_counts, a%send_displs, a%datatype, op, comm, stream, settings)
    case (qcclCollGatherV)
      code = c_qcclGatherVConfig(a%send, a%send_count, a%recv, a%recv_counts, a%recv_displs, a%datatype, root, comm, stream, &
        settings)
    case (qcclCollScatterV)
      code = c_qcclScatterVConfig(a%send, a%send_counts, a%send_displs, a%recv, a%recv_count, a%datatype, root, comm, stream, &
        settings)
    case (qcclCollAllToAllV)
      code = c_qcclAllToAllVConfig(a%send, a%send_counts, a%send_displs, a%recv, a%recv_counts, a%recv_displs, a%datatype, comm, &
        stream, settings)
    case default
      code = qcclInternalError
    end select
  end function

end module qccl_v_forms
