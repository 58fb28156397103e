! Messages between two ranks, and groups of calls. qccl_collectives.f90 describes the arguments that they share with
! collectives; they block as those do.
module qccl_messages
  use, intrinsic :: iso_c_binding
  use qccl_constants
  use qccl_handles
  use qccl_config, only: qcclCollConfig, coll_config_holder, fill_coll_config
  use qccl_errors, only: finish
  use qccl_buffers, only: call_arguments, read_messages
  use qccl_c
  implicit none
  private
  public :: qcclSend, qcclRecv, qcclSendRecv, qcclGroupStart, qcclGroupEnd

contains

  subroutine qcclSend(send, peer, comm, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    integer(c_int), intent(in) :: peer
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: a
    type(coll_config_holder), target :: held
    type(qcclStream) :: where
    integer(c_int32_t) :: result
    if (present(stream)) where = stream
    result = read_messages(a, send=send, send_count=count, datatype=datatype, comm=comm%handle)
    if (result /= qcclSuccess) then
      call finish("qcclSend", result, comm, .true., ierror)
    else
      result = c_qcclSendConfig(a%send, a%send_count, a%datatype, peer, comm%handle, where%handle, &
        fill_coll_config(held, config, codec))
      call finish("qcclSend", result, comm, ierror=ierror)
    end if
  end subroutine

  subroutine qcclRecv(recv, peer, comm, count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_int), intent(in) :: peer
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: a
    type(coll_config_holder), target :: held
    type(qcclStream) :: where
    integer(c_int32_t) :: result
    if (present(stream)) where = stream
    result = read_messages(a, recv=recv, recv_count=count, datatype=datatype, comm=comm%handle)
    if (result /= qcclSuccess) then
      call finish("qcclRecv", result, comm, .true., ierror)
    else
      result = c_qcclRecvConfig(a%recv, a%recv_count, a%datatype, peer, comm%handle, where%handle, &
        fill_coll_config(held, config, codec))
      call finish("qcclRecv", result, comm, ierror=ierror)
    end if
  end subroutine

  ! Sends to rank `dest` and receives from rank `source` at the same time.
  subroutine qcclSendRecv(send, dest, recv, source, comm, send_count, recv_count, datatype, stream, config, codec, ierror)
    type(*), dimension(..), intent(in), target, asynchronous :: send
    type(*), dimension(..), intent(inout), target, asynchronous :: recv
    integer(c_int), intent(in) :: dest, source
    type(qcclComm), intent(in) :: comm
    integer(c_size_t), intent(in), optional :: send_count, recv_count
    type(qcclDataType), intent(in), optional :: datatype
    type(qcclStream), intent(in), optional :: stream
    type(qcclCollConfig), intent(in), optional :: config
    type(qcclCodec), intent(in), optional :: codec
    integer(c_int), intent(out), optional :: ierror
    type(call_arguments) :: a
    type(coll_config_holder), target :: held
    type(qcclStream) :: where
    integer(c_int32_t) :: result
    if (present(stream)) where = stream
    result = read_messages(a, send, send_count, recv, recv_count, datatype, comm%handle)
    if (result /= qcclSuccess) then
      call finish("qcclSendRecv", result, comm, .true., ierror)
    else
      result = c_qcclSendRecvConfig(a%send, a%send_count, dest, a%recv, a%recv_count, source, a%datatype, comm%handle, &
        where%handle, fill_coll_config(held, config, codec))
      call finish("qcclSendRecv", result, comm, ierror=ierror)
    end if
  end subroutine

  ! Calls between the two procedures are made together by the second one. Their arrays stay in use until then.
  subroutine qcclGroupStart(ierror)
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclGroupStart", c_qcclGroupStart(), ierror=ierror)
  end subroutine

  subroutine qcclGroupEnd(ierror)
    integer(c_int), intent(out), optional :: ierror
    call finish("qcclGroupEnd", c_qcclGroupEnd(), ierror=ierror)
  end subroutine

end module qccl_messages
