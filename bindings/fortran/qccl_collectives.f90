! Collectives that are no v-forms, and their prepared calls. The type of the elements and the count follow from the arrays.
! They block as the functions of the C API do: with a stream they return at once, and the arrays stay in use until the stream
! has come past the call. One thread at a time may be in a communicator.
!
! The arguments that all procedures share:
!   send, recv  contiguous arrays of any rank, or scalars. send = QCCL_IN_PLACE: recv holds what the rank gives, too.
!   op          qcclSum if it is left out
!   count       elements, or those of one block; for the first ones of longer arrays, and for assumed-size arrays
!   datatype    what the bytes of the arrays are, for types that Fortran does not have
!   stream      as in the C API; left out: NULL
!   config      settings of this call; codec is config%codec as an argument of its own
!   ierror      receives the result. Without it an error prints its sentence and stops the program.
module qccl_collectives
  use, intrinsic :: iso_c_binding
  use qccl_constants
  use qccl_handles
  use qccl_config, only: qcclCollConfig, coll_config_holder, fill_coll_config
  use qccl_errors, only: finish
  use qccl_buffers, only: call_arguments, read_collective
  use qccl_c
  implicit none
  private
  public :: qcclAllReduce, qcclReduceScatter, qcclAllGather, qcclBroadcast, qcclReduce, qcclGather, qcclScatter, qcclAllToAll
  public :: qcclScan, qcclExscan, qcclSumExact, qcclBarrier, qcclCollCreate, qcclCollStart, qcclCollFree

contains

  ! Combines the vectors of all ranks element by element, and leaves the result on every rank.
  subroutine qcclAllReduce(send, recv, comm, op, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    type(qcclRedOp), intent(in), optional :: op
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclAllReduce", qcclCollAllReduce, send, recv, 0, comm, op, count, datatype, stream, &
      config, codec, ierror=ierror)
  end subroutine

  ! Combines the vectors of all ranks, and leaves block r of the result on rank r. In place, block r of recv receives it.
  subroutine qcclReduceScatter(send, recv, comm, op, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    type(qcclRedOp), intent(in), optional :: op
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclReduceScatter", qcclCollReduceScatter, send, recv, 0, comm, op, count, datatype, stream, &
      config, codec, ierror=ierror)
  end subroutine

  ! Leaves the blocks of all ranks, in rank order, on every rank. In place, block r of recv is what rank r gives.
  subroutine qcclAllGather(send, recv, comm, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclAllGather", qcclCollAllGather, send, recv, 0, comm, count=count, datatype=datatype, stream=stream, &
      config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Leaves the root's vector on every rank. Other ranks need no send.
  subroutine qcclBroadcast(send, recv, root, comm, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), optional, target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_int), intent(in) :: root
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclBroadcast", qcclCollBroadcast, send, recv, root, comm, count=count, datatype=datatype, stream=stream, &
      config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Combines the vectors of all ranks, and leaves the result on the root. Other ranks need no recv.
  subroutine qcclReduce(send, recv, root, comm, op, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), optional, target, asynchronous :: recv
    integer(c_int), intent(in) :: root
    type(qcclComm), intent(in) :: comm
    type(qcclRedOp), intent(in), optional :: op
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclReduce", qcclCollReduce, send, recv, root, comm, op, count, datatype, stream, &
      config, codec, ierror=ierror)
  end subroutine

  ! Leaves the blocks of all ranks, in rank order, on the root. Other ranks need no recv.
  subroutine qcclGather(send, recv, root, comm, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), optional, target, asynchronous :: recv
    integer(c_int), intent(in) :: root
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclGather", qcclCollGather, send, recv, root, comm, count=count, datatype=datatype, stream=stream, &
      config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Leaves block r of the root's vector on rank r. Other ranks need no send. In place, recv is the root's vector.
  subroutine qcclScatter(send, recv, root, comm, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), optional, target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_int), intent(in) :: root
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclScatter", qcclCollScatter, send, recv, root, comm, count=count, datatype=datatype, stream=stream, &
      config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Block j of rank i's vector becomes block i of rank j's.
  subroutine qcclAllToAll(send, recv, comm, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclAllToAll", qcclCollAllToAll, send, recv, 0, comm, count=count, datatype=datatype, stream=stream, &
      config=config, codec=codec, ierror=ierror)
  end subroutine

  ! Combines, for each rank, the vectors of the ranks up to itself.
  subroutine qcclScan(send, recv, comm, op, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    type(qcclRedOp), intent(in), optional :: op
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclScan", qcclCollScan, send, recv, 0, comm, op, count, datatype, stream, &
      config, codec, ierror=ierror)
  end subroutine

  ! Combines, for each rank, the vectors of the ranks before it. Rank 0 receives nothing.
  subroutine qcclExscan(send, recv, comm, op, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    type(qcclRedOp), intent(in), optional :: op
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    call make_call("qcclExscan", qcclCollExscan, send, recv, 0, comm, op, count, datatype, stream, &
      config, codec, ierror=ierror)
  end subroutine

  ! Sums the values of all ranks, whose numbers of values may differ, and rounds the sum once.
  subroutine qcclSumExact(values, total, comm, ierror)
    real(c_double), intent(in), contiguous, target :: values(:)
    real(c_double), intent(inout) :: total
    type(qcclComm), intent(in) :: comm
    integer(c_int), intent(out), optional :: ierror
    type(c_ptr) :: first
    first = c_null_ptr
    if (size(values) > 0) first = c_loc(values)
    call finish("qcclSumExact", c_qcclSumExact(first, size(values, kind=c_size_t), total, comm%handle), comm, ierror=ierror)
  end subroutine

  ! Returns, or lets the stream go on, when every rank has come.
  subroutine qcclBarrier(comm, stream, config, ierror)
    type(qcclComm), intent(in) :: comm
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    integer(c_int), intent(out), optional :: ierror
    type(coll_config_holder), target :: held
    type(qcclStream) :: where
    if (present(stream)) where = stream
    call finish("qcclBarrier", c_qcclBarrierConfig(comm%handle, where%handle, fill_coll_config(held, config)), comm, ierror=ierror)
  end subroutine

  ! Prepares a call of a collective, which qcclCollStart makes any number of times. The arrays have the target attribute, stay
  ! where they are until qcclCollFree, and may be left out where the collective does not use them.
  subroutine qcclCollCreate(coll, collective, send, recv, comm, op, root, count, datatype, stream, config, codec, ierror)
    type(qcclColl), intent(out) :: coll
    integer(c_int), intent(in) :: collective
    type(*), dimension(..), intent(in), optional, target, asynchronous :: send
    type(*), dimension(..), intent(inout), optional, target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    type(qcclRedOp), intent(in), optional :: op
    integer(c_int), intent(in), optional :: root
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    integer(c_int) :: from
    from = 0
    if (present(root)) from = root
    call make_call("qcclCollCreate", collective, send, recv, from, comm, op, count, datatype, stream, config, codec, coll, ierror)
  end subroutine

  subroutine qcclCollStart(coll, ierror)
    type(qcclColl), intent(in) :: coll
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCollStart", c_qcclCollStart(coll%handle), ierror=ierror)
  end subroutine

  subroutine qcclCollFree(coll, ierror)
    type(qcclColl), intent(in) :: coll
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclCollFree", c_qcclCollFree(coll%handle), ierror=ierror)
  end subroutine

  ! Makes the call, or prepares it where there is a `coll`.
  subroutine make_call(name, collective, send, recv, root, comm, op, count, datatype, stream, config, codec, coll, ierror)
    character(*), intent(in) :: name
    integer(c_int), intent(in) :: collective, root
    type(*), dimension(..), intent(in), optional, target, asynchronous :: send
    type(*), dimension(..), optional, target, asynchronous :: recv
    type(qcclComm), intent(in) :: comm
    type(qcclRedOp), intent(in), optional :: op
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    type(qcclColl), intent(out), optional :: coll
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: a
    type(coll_config_holder), target :: held
    type(qcclStream) :: where
    type(qcclRedOp) :: what
    type(c_ptr) :: settings
    integer(c_size_t) :: stride
    integer(c_int32_t) :: result
    if (present(op)) what = op
    if (present(stream)) where = stream
    stride = 0
    if (present(config)) stride = config%stride
    if (collective /= qcclCollBarrier) then
      result = read_collective(a, collective, send, recv, count, datatype, what%value, root, stride, comm%handle)
      if (result /= qcclSuccess) then
        call finish(name, result, comm, .true., ierror)
        return
      end if
    end if
    settings = fill_coll_config(held, config, codec)
    if (present(coll)) then
      result = c_qcclCollCreate(coll%handle, collective, a%send, a%recv, a%send_count, a%datatype, what%value, root, comm%handle, &
        where%handle, settings)
    else
      result = started(collective, a, what%value, root, comm%handle, where%handle, settings)
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
    associate (send => a%send, recv => a%recv, count => a%send_count, datatype => a%datatype)
      select case (collective)
      case (qcclCollAllReduce)
        code = c_qcclAllReduceConfig(send, recv, count, datatype, op, comm, stream, settings)
      case (qcclCollReduceScatter)
        code = c_qcclReduceScatterConfig(send, recv, count, datatype, op, comm, stream, settings)
      case (qcclCollAllGather)
        code = c_qcclAllGatherConfig(send, recv, count, datatype, comm, stream, settings)
      case (qcclCollBroadcast)
        code = c_qcclBroadcastConfig(send, recv, count, datatype, root, comm, stream, settings)
      case (qcclCollReduce)
        code = c_qcclReduceConfig(send, recv, count, datatype, op, root, comm, stream, settings)
      case (qcclCollGather)
        code = c_qcclGatherConfig(send, recv, count, datatype, root, comm, stream, settings)
      case (qcclCollScatter)
        code = c_qcclScatterConfig(send, recv, count, datatype, root, comm, stream, settings)
      case (qcclCollAllToAll)
        code = c_qcclAllToAllConfig(send, recv, count, datatype, comm, stream, settings)
      case (qcclCollScan)
        code = c_qcclScanConfig(send, recv, count, datatype, op, comm, stream, settings)
      case (qcclCollExscan)
        code = c_qcclExscanConfig(send, recv, count, datatype, op, comm, stream, settings)
      case default
        code = qcclInternalError
      end select
    end associate
  end function

end module qccl_collectives
